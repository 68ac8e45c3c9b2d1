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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from IPython.core.error import UsageError

from tfgpu_magic.ground.message import msg, paragraph
from tfgpu_magic.ground.process_kind import quiet_comms
from tfgpu_magic.parking.frameworks import refusal
from tfgpu_magic.parking.kernel.gate import Gate, StillParked

_CELL = "execute_request"
_WITHOUT_GPU = re.compile(r"%(?:tf_)?gpu +unpark +--without-gpu((?: +\w+)+)")
"""The cell that opens the gate with the state still away."""
_HARMLESS = frozenset({
    "comm_info_request", "connect_request", "create_subshell_request", "delete_subshell_request", "history_request",
    "interrupt_request", "is_complete_request", "kernel_info_request", "list_subshell_request", "shutdown_request",
    "usage_request",
})  # fmt: skip
"""Messages that run no code of the user's."""
_TOLD = frozenset(
    {"debugInfo", "initialize", "attach", "disconnect", "dumpCell", "setBreakpoints", "configurationDone"}
)
"""What a debugger's page says before anybody debugs; to block it would bring back every notebook that is opened."""
_WIDGETS = "jupyter.widget.control"
"""The target of the comm by which an opened page asks for the state of all widgets (ipywidgets 8, `widget.py`)."""
_STATES = frozenset({"request_states", "request_state"})
"""What it asks for: the state of all widgets, or, if no answer comes soon, of each."""
_PLAIN = ("ipywidgets.", "tfgpu_magic.")
"""The packages of widgets whose state is read without code of the user's."""
_PARKED = msg("This notebook is parked: bring its memory back first.")
"""Why a page's question is not answered: what completes a name, shows its help, looks into a debugger, or evaluates."""
_NOT_RUN = msg("The cell was not run.")
_DEAF = 1.0
"""Seconds after a message's wait in vain in which widgets' messages are not heard: they came while it waited."""


def block_cells(shell: Any, go_without: Callable[[Sequence[str]], None], gate: Gate) -> Iterator[str]:
    """Block a shell's cells, what is called around them, and its completions.

    Args:
        shell: IPython's shell.
        go_without: opens the gate with the state still away, for the names of what is wanted of it.
        gate: the gate.
    """
    if getattr(shell, "active_eventloop", None):
        yield f"%gui {shell.active_eventloop}"
    run = shell.run_cell_async

    @functools.wraps(run)  # from whose signature ipykernel learns what it may pass
    async def run_cell_async(raw_cell: str, *args: Any, **options: Any) -> Any:
        without = _WITHOUT_GPU.fullmatch(raw_cell.strip())
        try:
            go_without(without[1].split()) if without else gate.come(in_cell=True)
        except StillParked as error:
            usage = UsageError(str(paragraph([_NOT_RUN, error.message])))
            options["preprocessing_exc_tuple"] = (UsageError, usage, None)
            raw_cell = raw_cell.strip() or "pass"  # a blank one would succeed, and its expressions be evaluated
        return await run(raw_cell, *args, **options)

    gate.replace(shell, "run_cell_async", run_cell_async)

    def unless_closed(call: Callable[..., Any], otherwise: object) -> Callable[..., Any]:
        return lambda *args, **options: otherwise if gate.closed else call(*args, **options)

    gate.replace(shell.events, "trigger", unless_closed(shell.events.trigger, None))
    if not hasattr(shell, "kernel"):  # whose completions are messages
        gate.replace(shell.Completer, "completions", unless_closed(shell.Completer.completions, ()))


def at_end_of_cell(shell: Any, do: Callable[[], object]) -> None:
    """Do something when the cell that runs now has ended, below it, and before its page hears of its end.

    It is `Refused` if there is no such cell: a widget's callback runs, or the kernel is none of ipykernel's.
    """
    if not hasattr(shell, "kernel"):
        code = type(shell).run_cell.__code__

        def at_end(_: object) -> None:
            if sum(one.frame.f_code is code for one in inspect.stack(0)) <= 1:  # else a cell that goes on has run it
                shell.events.unregister("post_run_cell", at_end)
                do()

        shell.events.register("post_run_cell", at_end)
        return
    kernel = shell.kernel
    asked = kernel.get_parent("shell") if hasattr(kernel, "finish_metadata") else {}
    if asked.get("header", {}).get("msg_type") != _CELL:
        raise refusal(msg("It is parked when a cell has ended, and no cell says this: say it in one."))
    cell, finish = _number(asked), kernel.finish_metadata
    if getattr(finish, "cell", None) == cell:  # it was asked for twice
        return

    def finish_metadata(parent: Any, *args: Any) -> Any:
        if _number(parent) == cell:
            vars(kernel).pop("finish_metadata", None)
            try:
                do()
            except (Exception, KeyboardInterrupt):  # whatever it is, the page must hear of the cell's end
                shell.showtraceback()
        return finish(parent, *args)

    finish_metadata.cell = cell  # type: ignore[attr-defined]
    kernel.finish_metadata = finish_metadata


def _number(message: Mapping[str, Any]) -> str:
    return str(message.get("header", {}).get("msg_id", ""))


def block_messages(kernel: Any, gate: Gate) -> Iterator[str]:
    """Block a kernel's messages, and yield the names of what cannot be blocked."""
    if getattr(kernel, "eventloop", None) is not None:
        yield "the event loop of a graphical interface"
    messages = _Messages(kernel, gate)
    for table in (kernel.shell_handlers, kernel.control_handlers):
        for name in table.keys() - _HARMLESS:
            gate.replace(table, name, partial(messages.handle, name, table[name]))


class _Messages:
    """The messages of a kernel that is parked."""

    def __init__(self, kernel: Any, gate: Gate) -> None:
        self._kernel, self._gate = kernel, gate
        self._deaf = 0.0
        self._later: dict[tuple[str, str], Callable[[], object]] = {}  # by comm and page
        gate.when_open(self._do_later)

    async def handle(self, name: str, handler: Callable[..., Any], *message: Any) -> None:
        """Handle a message as far as that needs no state, or once it is back; nothing comes back for a question."""
        _, ident, parent = message
        does = self._does(name, parent["content"]) if self._gate.closed else "nothing"
        if does == "shows" and self._put_off(name, message):
            return
        if does == "tells":
            answer: dict[str, object] = {"status": "error", "ename": "Parked", "evalue": str(_PARKED), "traceback": []}
            answer |= {"success": False, "message": str(_PARKED)} if name == "debug_request" else {}
            self._kernel.session.send(message[0], f"{name.removesuffix('request')}reply", answer, parent, ident)
        elif does != "runs" or self._back(name):
            await _done(handler(*message))

    def _does(self, name: str, content: Mapping[str, Any]) -> Literal["nothing", "tells", "shows", "runs"]:
        """Return what a message does: none of the user's code runs, or only what shows its widgets, or any.

        The first are cells, which are blocked otherwise, a page's first ones, and those of our own live table; what
        only asks, as our chooser does in a silent message without a cell, is answered that this is parked; what shows
        widgets can be put off.
        """
        if name == _CELL:
            return "tells" if content.get("silent") and not content.get("code", "").strip() else "nothing"
        if name.endswith("_request"):
            return "nothing" if name == "debug_request" and content.get("command") in _TOLD else "tells"
        if name == "comm_open":
            return "nothing" if content.get("target_name") == _WIDGETS else "runs"
        if not name.startswith("comm_"):
            return "runs"
        comm = self._kernel.comm_manager.comms.get(content.get("comm_id"))
        if comm is None or (comm.target_name == _WIDGETS and name == "comm_close"):  # nobody hears it
            for one in [*self._later]:
                if one[0] == content.get("comm_id"):
                    self._later.pop(one, None)
            return "nothing"
        if name != "comm_msg":
            return "runs"
        if comm.target_name.startswith("jupyter.widget") and content.get("data", {}).get("method") in _STATES:
            widgets = getattr(sys.modules.get("ipywidgets.widgets.widget"), "_instances", {})  # ipywidgets 7 has none
            asked = widgets.values() if comm.target_name == _WIDGETS else [widgets.get(comm.comm_id)]
            return "nothing" if all(type(one).__module__.startswith(_PLAIN) for one in asked) else "shows"
        return "nothing" if comm.comm_id in quiet_comms else "runs"

    def _back(self, name: str) -> bool:
        """Bring the state back for a message, unless it came while another one waited in vain."""
        if time.monotonic() < self._deaf:
            return False
        try:
            self._gate.come()
        except StillParked as error:
            self._deaf = time.monotonic() + _DEAF
            self._kernel.log.warning("%s was not handled. %s", name, error)
            return False
        return True

    def _put_off(self, name: str, message: tuple[Any, Any, Any]) -> bool:
        """Make the loop that runs now handle a message once the gate is opened; its sender is answered as at once.

        Of what a page asks by one comm, the last is answered. It is False if the gate was opened meanwhile.
        """
        _, ident, parent = message
        kernel, loop = self._kernel, asyncio.get_running_loop()

        async def handle() -> None:
            before = kernel.get_parent("shell")
            kernel.set_parent(ident, parent)
            try:
                await _done(kernel.shell_handlers[name](*message))
            finally:
                kernel.set_parent(ident, before)

        asks = parent["content"]["comm_id"], parent["header"]["session"]
        self._later[asks] = partial(loop.call_soon_threadsafe, lambda: loop.create_task(handle()))
        return self._gate.closed or self._later.pop(asks, None) is None

    def _do_later(self) -> None:
        while self._later:
            with contextlib.suppress(RuntimeError):  # a loop of a subshell that is gone
                self._later.popitem()[1]()


async def _done(result: Any) -> None:
    if inspect.isawaitable(result):
        await result
