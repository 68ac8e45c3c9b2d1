"""Blocks the cells of an IPython shell and the messages of a kernel until the state is back.

All cells pass `run_cell_async`: a kernel's and a terminal's, and those that code runs. One whose state does not come
back is not run: IPython shows why in its place, and counts it as a cell with a mistake in its text. Every message of a
front end passes a table of handlers, one of the shell channel and its subshells, one of the control channel. All of
them are blocked but those that are known to run no code of the user's, and cells, which can be answered well later.
What only asks for the state of the user's widgets, as each page does that is loaded, is put off and wakes nothing.
Source: IPython 7.34 to 9, `core/interactiveshell.py`; ipykernel 6 and 7, `kernelbase.py`, `ipkernel.py`,
`subshell_manager.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import re
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from IPython.core.error import UsageError

from tfgpu_magic.parking.inside.gate import Caller, NotBack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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

_WITHOUT_GPU = re.compile(r"%(tf_)?gpu\s+unpark\s+--without-gpu")
"""The cell that opens the gate by hand."""

_ASKED = re.compile(r"__import__\('tfgpu_magic\.parking\.inside\.notebook'.*\)\.answer\('(\w+)'.*\)")
"""The cell with which another process asks something of a kernel (`ask_kernel`)."""

_TOLD = frozenset(
    {"debugInfo", "initialize", "attach", "disconnect", "dumpCell", "setBreakpoints", "configurationDone"}
)
"""What a debugger's page says before anybody debugs; to block it would bring back every notebook that is opened."""

_WIDGETS = "jupyter.widget.control"
"""The target of the comm by which an opened page asks for the state of all widgets (ipywidgets 8, `widget.py`)."""

_STATES = frozenset({"request_states", "request_state"})
"""What it asks for: the state of all widgets, or, where no answer comes soon, of each."""

_PLAIN = ("ipywidgets.", "tfgpu_magic.")
"""Where the classes of widgets are whose state is read without code of the user's."""

_PARKED = "This notebook is parked: bring its memory back first."
"""Why a page's question is not answered: what completes a name, shows its help, looks into a debugger, or evaluates."""

_DEAF = 1.0
"""Seconds after a message's wait in vain in which widgets' messages are not heard: they came while it waited."""


def block_cells(shell: Any, gate: Gate) -> Iterator[str]:
    """Block a shell's cells, the functions that are called around them, and its completions."""
    if getattr(shell, "active_eventloop", None):
        yield f"%gui {shell.active_eventloop}"
    run, trigger, completions = shell.run_cell_async, shell.events.trigger, shell.Completer.completions

    @functools.wraps(run)  # from whose signature ipykernel learns what it may pass
    async def run_cell_async(raw_cell: str, *args: Any, **options: Any) -> Any:
        try:
            gate.come(Caller.BY_HAND if _WITHOUT_GPU.fullmatch(raw_cell.strip()) else Caller.CELL)
        except NotBack as error:
            options["preprocessing_exc_tuple"] = (UsageError, UsageError(f"The cell was not run. {error}"), None)
            raw_cell = raw_cell.strip() or "pass"  # a blank one would succeed, and its expressions be evaluated
        return await run(raw_cell, *args, **options)

    def blocked_trigger(*args: Any, **options: Any) -> None:
        if not gate.closed:  # no cell has run else
            trigger(*args, **options)

    def blocked_completions(*args: Any, **options: Any) -> Any:
        return iter(()) if gate.closed else completions(*args, **options)

    gate.replace(shell, "run_cell_async", run_cell_async)
    gate.replace(shell.events, "trigger", blocked_trigger)
    if not hasattr(shell, "kernel"):  # whose completions are messages
        gate.replace(shell.Completer, "completions", blocked_completions)


def ended_by(shell: Any) -> bool:
    """Tell whether the cell that ends now was run by its user, and not by another cell, which goes on."""
    code = type(shell).run_cell.__code__
    return sum(one.frame.f_code is code for one in inspect.stack(0)) <= 1


def block_messages(kernel: Any, asked: Mapping[str, Callable[[], Mapping[str, str]]], gate: Gate) -> Iterator[str]:
    """Block a kernel's messages; give the names of what cannot be blocked.

    Args:
        kernel: the kernel.
        asked: what silent messages of ours ask of a parked kernel, by name; it returns their replies' metadata.
        gate: the gate.
    """
    if getattr(kernel, "eventloop", None) is not None:
        yield "the event loop of a graphical interface"
    deaf = [0.0]
    for table in (kernel.shell_handlers, kernel.control_handlers):
        for name in [one for one in table if one not in _HARMLESS and one != _CELL]:
            gate.replace(table, name, _blocked(kernel, name, table[name], gate, deaf))
    gate.replace(kernel.shell_handlers, _CELL, _unless_silent(kernel, kernel.shell_handlers[_CELL], gate, asked))


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


def _effect(kernel: Any, name: str, content: Mapping[str, Any]) -> Literal["none", "shows", "runs"]:
    """Return what a message does: none of the user's code runs, or only what shows its widgets, or any.

    The first are a page's first ones, and those of our own live table; the second can be put off.
    """
    if name == "debug_request":
        return "none" if content.get("command") in _TOLD else "runs"
    if name == "comm_open":
        return "none" if content.get("target_name") == _WIDGETS else "runs"
    if not name.startswith("comm_"):
        return "runs"
    comm = kernel.comm_manager.comms.get(content.get("comm_id"))
    if comm is None or (comm.target_name == _WIDGETS and name == "comm_close"):  # nobody hears it
        return "none"
    if name != "comm_msg":
        return "runs"
    if comm.target_name.startswith("jupyter.widget") and content.get("data", {}).get("method") in _STATES:
        widgets = getattr(sys.modules.get("ipywidgets.widgets.widget"), "_instances", {})  # ipywidgets 7 has none
        asked = widgets.values() if comm.target_name == _WIDGETS else [widgets.get(comm.comm_id)]
        return "none" if all(type(one).__module__.startswith(_PLAIN) for one in asked) else "shows"
    live: Any = getattr(sys.modules.get("tfgpu_magic.notebook.widget"), "MemoryTable", None)
    return "none" if live is not None and comm.comm_id == live.number() else "runs"


def _put_off(kernel: Any, name: str, message: tuple[Any, Any, Any], gate: Gate) -> None:
    """Have the loop that runs now handle a message once the gate is opened; who sent it is answered as at once."""
    loop = asyncio.get_running_loop()

    async def handle() -> None:
        _, ident, parent = message
        before = kernel.get_parent("shell")
        kernel.set_parent(ident, parent)
        try:
            await _done(kernel.shell_handlers[name](*message))
        finally:
            kernel.set_parent(ident, before)

    def put() -> None:
        with contextlib.suppress(RuntimeError):  # a loop of a subshell that is gone
            loop.call_soon_threadsafe(lambda: loop.create_task(handle()))

    gate.when_open(put)


async def _done(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


def _blocked(kernel: Any, name: str, handler: Callable[..., Any], gate: Gate, deaf: list[float]) -> Callable[..., Any]:
    """Return a handler that lets the state come back first; a question, for which nothing comes back, is refused."""

    async def handle(stream: Any, ident: Any, parent: Any) -> None:
        if gate.closed and (effect := _effect(kernel, name, parent["content"])) != "none":
            if effect == "shows":
                _put_off(kernel, name, (stream, ident, parent), gate)
                if gate.closed:  # else it may have been opened meanwhile
                    return
            if name.endswith("_request"):
                answer = {"status": "error", "ename": "Parked", "evalue": _PARKED, "traceback": []}
                beside = {"success": False, "message": _PARKED} if name == "debug_request" else {}
                reply = name.removesuffix("_request") + "_reply"
                kernel.session.send(stream, reply, answer | beside, parent, ident)
                return
            if time.monotonic() < deaf[0]:
                return
            try:
                gate.come(Caller.MESSAGE)
            except NotBack as error:
                deaf[0] = time.monotonic() + _DEAF
                kernel.log.warning("%s was not handled. %s", name, error)
                return
        await _done(handler(stream, ident, parent))

    return handle


def _unless_silent(
    kernel: Any, handler: Callable[..., Any], gate: Gate, asked: Mapping[str, Callable[[], Mapping[str, str]]]
) -> Callable[..., Any]:
    """Return a handler of cells that answers what others ask of a parked kernel, for which it wakes nothing.

    Silent messages without a cell evaluate expressions, as our chooser's: they are refused. What is asked by ours may
    take long, and is answered when it is done: the kernel goes on meanwhile.
    """

    async def handle(stream: Any, ident: Any, parent: Any) -> None:
        code = parent["content"].get("code", "").strip()
        found = _ASKED.fullmatch(code)
        do = asked.get(found[1]) if found else None
        if not (gate.closed and parent["content"].get("silent") and (do or not code)):
            await _done(handler(stream, ident, parent))
            return
        reply = partial(kernel.session.send, stream, "execute_reply", parent=parent, ident=ident)
        if do is None:
            reply({"status": "error", "ename": "Parked", "evalue": _PARKED, "traceback": []})
            return
        loop, done = asyncio.get_running_loop(), {"status": "ok", "user_expressions": {}, "payload": []}

        def work() -> None:
            metadata = do()
            with contextlib.suppress(RuntimeError):  # a loop that is closed
                loop.call_soon_threadsafe(partial(reply, done, metadata=metadata))

        threading.Thread(target=work, name="tfgpu_magic-asked", daemon=True).start()

    return handle
