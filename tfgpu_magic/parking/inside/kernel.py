"""Holds the messages of an IPython kernel, finds its event loops, and does something when its cell ends.

Every message of a front end passes a table of handlers, one of the shell channel and its subshells, one of the control
channel. All of them are held but those that are known to run no code of the user's; cells are held later, by `cells`,
where they can be answered well.
Source: ipykernel 6 and 7, `kernelbase.py`, `ipkernel.py`, `subshell_manager.py`.
"""

from __future__ import annotations

import inspect
import sys
import threading
from typing import TYPE_CHECKING, Any

from tfgpu_magic.parking.inside import event_loop
from tfgpu_magic.parking.inside.gate import NotBack, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfgpu_magic.parking.inside.event_loop import Do
    from tfgpu_magic.parking.inside.gate import Gate

_HARMLESS = frozenset(
    {
        "comm_info_request", "connect_request", "create_subshell_request", "delete_subshell_request",
        "history_request", "interrupt_request", "is_complete_request", "kernel_info_request",
        "list_subshell_request", "shutdown_request", "usage_request",
    }
)  # fmt: skip
"""Messages that run no code of the user's."""

_CELL = "execute_request"

_TOLD = frozenset(
    {"debugInfo", "initialize", "attach", "disconnect", "dumpCell", "setBreakpoints", "configurationDone"}
)
"""What a debugger's page says before anybody debugs; to hold it would bring back every notebook that is opened."""

_WIDGETS = "jupyter.widget.control"
"""The target of the comm by which an opened page asks for the state of all widgets (ipywidgets 8, `widget.py`)."""


def hold(kernel: Any, gate: Gate, in_background: Do) -> Iterator[str]:
    """Hold a kernel's messages and what its event loops have waiting; give the names of what cannot be held."""
    if getattr(kernel, "eventloop", None) is not None:
        yield "the event loop of a graphical interface"
    for table in (kernel.shell_handlers, kernel.control_handlers):
        for name in [one for one in table if one not in _HARMLESS and one != _CELL]:
            gate.replace(table, name, _held(kernel, name, table[name], gate))
    for loop in loops(kernel):
        yield from event_loop.hold(loop, gate, in_background)


def loops(kernel: Any) -> list[Any]:
    """Return the event loops in which a kernel runs user code: the main one, and those of subshells."""
    threads = [one for one in threading.enumerate() if one.name.startswith("subshell-") and hasattr(one, "io_loop")]
    return [getattr(one.io_loop, "asyncio_loop", one.io_loop) for one in (kernel, *threads)]


def runs_cell(kernel: Any) -> bool:
    """Tell whether what runs now was asked for by a cell, whose end can be waited for: a widget's callback was not."""
    if not hasattr(kernel, "finish_metadata"):  # it is none of ipykernel's
        return False
    return bool(kernel.get_parent("shell").get("header", {}).get("msg_type") == _CELL)


def at_end_of_cell(kernel: Any, do: Callable[[], Mapping[str, Any]]) -> None:
    """Do something when the cell that runs now has ended, below it, and before its page is told of its end.

    Args:
        kernel: the kernel.
        do: returns what the page is told beside, by name.
    """
    cell = _number(kernel.get_parent("shell"))
    finish = kernel.finish_metadata
    if getattr(finish, "cell", None) == cell:  # it was asked for twice
        return

    def finish_metadata(parent: Any, metadata: dict[str, Any], reply_content: Any) -> Any:
        if _number(parent) == cell:
            vars(kernel).pop("finish_metadata", None)
            try:
                metadata.update(do())
            except (Exception, KeyboardInterrupt):  # whatever it is, the page must be told of the cell's end
                kernel.shell.showtraceback()
        return finish(parent, metadata, reply_content)

    finish_metadata.cell = cell  # type: ignore[attr-defined]
    kernel.finish_metadata = finish_metadata


def _number(message: Mapping[str, Any]) -> str:
    return str(message.get("header", {}).get("msg_id", ""))


def _runs_nothing(kernel: Any, name: str, content: Mapping[str, Any]) -> bool:
    """Tell whether a message runs no code of the user's: a page's first ones, and those of our own live table."""
    if name == "debug_request":
        return content.get("command") in _TOLD
    if name == "comm_open":
        return content.get("target_name") == _WIDGETS
    if not name.startswith("comm_"):
        return False
    comm = kernel.comm_manager.comms.get(content.get("comm_id"))
    if comm is None:  # nobody hears it
        return True
    if comm.target_name == _WIDGETS:
        widgets = getattr(sys.modules["ipywidgets.widgets.widget"], "_instances", None)  # ipywidgets 7 has none
        plain = widgets is not None and all(type(one).__module__.startswith(_PLAIN) for one in widgets.values())
        return plain or name == "comm_close"
    live: Any = getattr(sys.modules.get("tfgpu_magic.notebook.widget"), "MemoryTable", None)
    return name == "comm_msg" and live is not None and comm.comm_id == live.number()


_PLAIN = ("ipywidgets.", "tfgpu_magic.")
"""Where the classes of widgets are whose state is read without code of the user's."""


def _held(kernel: Any, name: str, handler: Callable[..., Any], gate: Gate) -> Callable[..., Any]:
    """Return a handler that lets the state come back first; a message that was waited for in vain is answered."""
    way = Way.MESSAGE if name.startswith("comm_") else Way.QUESTION

    async def handle(stream: Any, ident: Any, parent: Any) -> None:
        if not _runs_nothing(kernel, name, parent["content"]):
            try:
                gate.come(way)
            except NotBack as error:
                kernel.log.warning("%s was not handled. %s", name, error)
                if name.endswith("_request"):
                    answer = {"status": "error", "ename": "Parked", "evalue": str(error), "traceback": []}
                    beside = {"success": False, "message": str(error)} if name == "debug_request" else {}
                    reply = name.removesuffix("_request") + "_reply"
                    kernel.session.send(stream, reply, answer | beside, parent, ident)
                return
        done = handler(stream, ident, parent)
        if inspect.isawaitable(done):
            await done

    return handle
