"""What this process is to its user: a kernel, a session in a terminal, an isolated cell, a program; and its cells."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

ProcessKind: TypeAlias = Literal["kernel", "session", "cell", "program"]
"""What a process can be; only a kernel has a notebook, a menu to restart it from, and a server that can do so."""

SIMULATED = "TFGPU_SIMGPU"
"""The file of the simulated machine on which a process is; `python -m tfgpu_magic.simgpu` sets it."""
SIMULATED_USER = "TFGPU_SIMGPU_USER"
"""The name of other users on a simulated machine; without it, the system's names are used."""

CALLS = "# tfgpu_magic's isolated calls"
"""A mark in the command line of worker processes and of the fork servers that they are forked from."""

in_worker = False
"""Whether this is the worker process of an isolated call; it sets this itself."""

caller = ""
"""The word for what called it, as `noun` has it there; a worker sets this itself."""

quiet_comms: set[str] = set()
"""The ids of comms whose pages send by themselves, as those of the live table do: a message of theirs is no use."""

announce: Callable[[], object] = bool
"""Has this process report, if it does, to those who view it; what reports sets this itself."""


class RoomWait(NamedTuple):
    """A process's wait for room on GPUs.

    Attributes:
        gpus: the GPUs that it waits for, by UUID.
        since: since when it waits for room, in seconds since the epoch.
        room: when it had room, in seconds since the epoch; None while it waits.
        until: when the wait ends at the latest, in seconds since the epoch; None if it has no end.
        needs: bytes that it waits for on a GPU; None if that is not known.
        any_gpu: whether one of several GPUs will do.
    """

    gpus: Sequence[str] = ()
    since: float = 0.0
    room: float | None = None
    until: float | None = None
    needs: int | None = None
    any_gpu: bool = False


room_wait: RoomWait | None = None
"""This process's wait for room, as its report has it; `engine.room` sets it."""

preload: list[str] = []
"""The modules that isolated calls of this process find imported, beside those that `isolate` itself needs."""


def shell() -> Any:
    """Return this process's IPython shell; None where it has none. IPython is not imported for it."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def process_kind() -> ProcessKind:
    """Return what this process is; IPython is not imported for it."""
    here = shell()
    if here is None:
        return "program"
    if getattr(here, "isolated", False):
        return "cell"
    return "kernel" if hasattr(here, "kernel") else "session"


def noun() -> str:
    """Return the word for this process in texts for the user, for whom a kernel is "this notebook"."""
    what = process_kind()
    return "notebook" if what == "kernel" else what


def magics(shell: Any) -> Any:
    """Return the magics of a shell; None where the extension is not loaded."""
    return shell.magics_manager.registry.get("TfGpuMagics")


def is_starting(shell: Any) -> bool:
    """Return whether a shell is that of a kernel that starts, and has no cell yet below which to show anything."""
    return hasattr(shell, "kernel") and not getattr(shell, "parent_header", None)


def in_cell() -> bool:
    """Return whether this is called in a cell of which IPython tells the end: not in a silent one, nor at a start."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "run_cell_async" and not frame.f_locals.get("silent"):
            return True
        frame = frame.f_back
    return False


def title(body: str) -> str:
    """Return the line of a cell that tells most: the first that calls something, or else that does something."""
    lines = [line for line in body.splitlines() if line.strip()]
    doing = [line for line in lines if not line.lstrip().startswith(("#", "import ", "from ", "%"))]
    calling = [line for line in doing if "(" in line and not line.lstrip().startswith(_TELLS_LITTLE)]
    calling.sort(key=lambda line: line[0].isspace())  # the cell's own calls, before those in its functions and loops
    return next((line.strip() for line in [*calling, *doing, *lines]), "")


_TELLS_LITTLE = ("def ", "async ", "class ", "@", "for ", "while ", "if ", "elif ", "with ", "print(")
"""How a line begins that calls something, and says less of its cell than the lines below it."""


class CellWatch:
    """A watch of the cells, which does nothing yet.

    Args:
        shell: IPython's shell.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def start(self) -> None:
        """Watch the cells, from the end of the one that runs on."""
        self._shell.events.register("pre_run_cell", self._before_cell)
        self._shell.events.register("post_run_cell", self._after_cell)

    def stop(self) -> None:
        """Watch no more."""
        with contextlib.suppress(ValueError):  # it was not started
            self._shell.events.unregister("pre_run_cell", self._before_cell)
            self._shell.events.unregister("post_run_cell", self._after_cell)

    def _before_cell(self, info: Any) -> None:
        """Called before a cell, with IPython's `ExecutionInfo`."""

    def _after_cell(self, result: Any) -> None:
        """Called after it, with its `ExecutionResult`; ipykernel has None of a cell interrupted while it awaited."""


class RunWatch(CellWatch):
    """A watch that knows whether any cell runs: cells run cells, and side by side in a kernel's subshells.

    Args:
        shell: IPython's shell.
        running: whether a cell is running now.
    """

    def __init__(self, shell: Any, *, running: bool = False) -> None:
        super().__init__(shell)
        self._cells = [None] * running  # those that run; several threads add to it and take from it

    @property
    def _running(self) -> bool:
        return bool(self._cells)

    def _before_cell(self, _: Any) -> None:
        self._cells.append(None)
        self._cells_changed()

    def _after_cell(self, result: Any) -> None:
        if result is not None and not (result.info.raw_cell or "").strip():
            return  # IPython tells the end of an empty cell, and not its beginning
        del self._cells[-1:]  # there is none where the cell that starts the watch has begun before it
        self._cells_changed()

    def _cells_changed(self) -> None:
        """Called when a cell has begun or ended."""


class UseWatch(RunWatch):
    """One that is told of a page's messages to widgets, too: who moves sliders uses the notebook, without a cell."""

    def start(self) -> None:
        """Watch both; only a kernel has widgets."""
        super().start()
        if hasattr(self._shell, "kernel"):
            self._shell.events.register("pre_execute", self._before_code)

    def stop(self) -> None:
        """Watch neither."""
        super().stop()
        with contextlib.suppress(ValueError):
            self._shell.events.unregister("pre_execute", self._before_code)

    def _before_code(self) -> None:
        """Called before a cell, a silent one, or a comm's callback; the live table's pages send unasked."""
        kernel = self._shell.kernel
        parent = kernel.get_parent("shell") if hasattr(kernel, "get_parent") else {}
        if parent.get("content", {}).get("comm_id") not in quiet_comms:
            self._note_use()

    def _note_use(self) -> None:
        """Called at any use."""
