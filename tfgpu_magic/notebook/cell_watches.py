"""Watches cells: names the one that used a GPU first, explains one that ran out of memory, gives back while none runs.

Each is called around every cell, and imports what is about a framework when one is there.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import threading
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfgpu_magic.frameworks import NAMES, import_hook
from tfgpu_magic.ground.process_kind import CellWatch, RunWatch, process_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgpu_magic.frameworks.registry import Framework

QUOTE_LENGTH = 60
"""The most characters of a cell's line to quote when "too late" names the cell."""

PATIENCE = 1.0
"""Seconds that a cell which begins amid a giving back waits for its end, which takes milliseconds."""

_CALLS = "tfgpu_magic.isolate.process.forkserver_client"
"""The module that is there once an isolated call was made: its error is raised here, without its framework."""


class FirstUseWatch(CellWatch):
    """A check of the stages after each cell, in microseconds, until the frameworks have started."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._sources: dict[int, str] = {}  # by the thread: a subshell's cells run beside those of the notebook
        # A framework may have started before the cells were watched; then no cell can be named.
        self._started_frameworks = {framework.name for framework in _started_frameworks()}

    def check(self) -> None:
        """Note the running cell for what has started in it. The cell's number is known only at its end."""
        for framework in self._new():
            self._note(framework, "this cell")

    def start(self) -> None:
        """Watch the cells, and TensorFlow's import, at which it is noted whose CUDA contexts are there."""
        super().start()
        import_hook.call_at_import(_note_import)
        if imported := _frameworks():
            imported.RUNTIME.protect_settings()  # it was loaded before

    def stop(self) -> None:
        """Watch no more, and have TensorFlow's calls respect no policy any more."""
        super().stop()
        if (calls := sys.modules.get("tfgpu_magic.frameworks.tensorflow.calls")) is not None:
            calls.restore()

    def _before_cell(self, info: Any) -> None:
        self._sources[threading.get_ident()] = info.raw_cell or ""

    def _after_cell(self, result: Any) -> None:
        for framework in self._new():
            self._started_frameworks.add(framework.name)
            # A cell that was interrupted while it awaited has no result, and one that is not kept has no number.
            number = getattr(result, "execution_count", None)
            self._note(framework, "a cell" if number is None else f"In [{number}]")
        self._sources.pop(threading.get_ident(), None)
        if (check := sys.modules.get("tfgpu_magic.engine.in_force")) is not None:  # else nothing was asked
            check.after_cell()
        error = getattr(result, "error_in_exec", None)
        if error is not None and "tensorflow" in sys.modules:
            _note_broken(error)

    def _new(self) -> list[Framework]:
        """Return the frameworks that have started since the last look."""
        if all(NAMES[module] in self._started_frameworks for module in NAMES.keys() & sys.modules.keys()):
            return []
        return [framework for framework in _started_frameworks() if framework.name not in self._started_frameworks]

    def _note(self, framework: Framework, cell: str) -> None:
        here = threading.get_ident()
        unsure = self._sources.keys() - {here}  # of several cells that run, any may be the one
        cell = "a cell" if unsure else f"{cell}{_quote(self._sources.get(here, ''))}"
        framework.since = f"since {cell}"


def _note_import() -> None:
    if imported := _frameworks():
        imported.note_import()


def _started_frameworks() -> list[Framework]:
    """Return the frameworks that use a GPU, or a CUDA context that may be theirs."""
    imported = _frameworks()
    return imported.active() if imported else []


def _frameworks() -> ModuleType | None:
    """Return the room of the frameworks, if one of them is imported."""
    if not NAMES.keys() & sys.modules.keys():
        return None
    from tfgpu_magic.frameworks import registry  # else the import is spared, and %load_ext is swift

    return registry


def _note_broken(error: BaseException) -> None:
    """Note a first op that failed for lack of memory. Later failures, when TensorFlow is ready, do not matter."""
    imported = _frameworks()
    if imported and imported.RUNTIME.half_started and imported.is_out_of_memory(error) and _from_tensorflow(error):
        imported.RUNTIME.broken = True


def _from_tensorflow(error: BaseException) -> bool:
    """Return whether TensorFlow raised an error. Other libraries run out of memory too."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(name.partition(".")[0] == "tensorflow" for name in modules)


def _quote(source: str) -> str:
    """Return the only statement of a cell that may have started a framework, in brackets. "" if several may."""
    # Magics and shell lines are no Python; an empty line in their place keeps the line numbers.
    python = "\n".join("" if line.startswith(("%", "!", "?")) else line for line in source.splitlines())
    try:
        body = ast.parse(python).body
        doing = [node for node in body if not isinstance(node, _QUIET) and not _is_constant(node)]
        doing = doing or [node for node in body if _may_start(node)]
        may_have = [ast.get_source_segment(python, node) or "" for node in doing]
    except (SyntaxError, ValueError):
        lines = [line.strip() for line in source.splitlines()]
        may_have = [line for line in lines if line and not line.startswith(("#", "import ", "from ", "%", "!"))]
    if len(may_have) != 1:
        return ""
    line = may_have[0].partition("\n")[0].partition("  #")[0].rstrip()
    return f" ({line if len(line) <= QUOTE_LENGTH else line[: QUOTE_LENGTH - 1] + '…'})"


_QUIET = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
"""Statements that start nothing, or whose own text does not show what they start."""


def _may_start(node: ast.stmt) -> bool:
    """Return whether a statement imports what may start a framework: neither one itself nor Python's own modules do."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    names += [node.module or "."] if isinstance(node, ast.ImportFrom) else []
    return not {name.partition(".")[0] for name in names} <= {"keras", *NAMES, *sys.stdlib_module_names}


def _is_constant(node: ast.stmt) -> bool:
    """Return whether a statement just has a constant, or shows what has a name."""
    value = node.value if isinstance(node, ast.Expr | ast.Assign) else None
    return isinstance(value, ast.Constant) or (isinstance(node, ast.Expr) and isinstance(value, ast.Name))


class FailureWatch(CellWatch):
    """What shows `%tf_gpu why` below the traceback of a cell. It never fails, and keeps nothing of the error.

    Args:
        shell: IPython's shell.
        wanted: returns whether anything is to be shown.
    """

    def __init__(self, shell: Any, wanted: Callable[[], bool] = lambda: True) -> None:
        super().__init__(shell)
        self._wanted = wanted
        self._known = id(_last())  # the error itself is not kept

    def start(self) -> None:
        """Watch the cells, unless this is an isolated cell's process: the notebook shows its error."""
        if not getattr(self._shell, "isolated", False):
            super().start()

    def _before_cell(self, _: Any) -> None:
        self._known = id(_last())

    def _after_cell(self, result: Any) -> None:
        error = getattr(result, "error_in_exec", None)  # a cell that was interrupted while it awaited has no result
        last = _last()
        if error is None and id(last) != self._known:  # a traceback that the cell has gone on from, as `%run` does
            error = last
        self._known = id(last)  # that of a cell within a cell is told once
        if error is None or not self._wanted() or not (NAMES.keys() | {_CALLS}) & sys.modules.keys():
            return
        with contextlib.suppress(BaseException):  # the user's error is what must be seen, and its class may have code
            from tfgpu_magic.notebook import failures  # few cells end so: loading the extension needs none of it

            failures.show(error, getattr(result, "execution_count", None))


def _last() -> Any:
    """Return the last error that was shown, or None if it was let go of."""
    return getattr(sys, "last_value", None)


class IdleRelease(RunWatch):
    """What gives memory that TensorFlow does not use back to the driver, once no cell has run for a while.

    Its timer runs only if `growth --release` is in force. It looks at nothing that is not imported yet: what is not
    imported holds no memory. It sends nothing and makes no report, so for its server the kernel is as idle as it was.

    Args:
        shell: IPython's shell, whose cells are watched.
        after: returns the seconds to wait; 0 is for ever.
    """

    def __init__(self, shell: Any, after: Callable[[], float]) -> None:
        super().__init__(shell)
        self._seconds = after
        self._timer: threading.Timer | None = None

    def stop(self) -> None:
        """Watch no more. A giving back that has begun goes on."""
        super().stop()
        if self._timer is not None:
            self._timer.cancel()

    def _cells_changed(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join(PATIENCE)  # a wait for the GPUs would spoil a CUDA graph that the cell records
        if not self._cells and (seconds := self._seconds()) and _is_asked():
            self._timer = threading.Timer(min(threading.TIMEOUT_MAX, seconds), _give_back)
            self._timer.name, self._timer.daemon = "tfgpu_magic-idle-release", True
            self._timer.start()


def _is_asked() -> bool:
    """Return whether `growth --release` is in force."""
    runtime: Any = sys.modules.get("tfgpu_magic.frameworks.runtime")
    plan = getattr(getattr(runtime, "RUNTIME", None), "plan", None)  # another thread may have imported half of it
    return plan is not None and bool(plan.releases)


def _give_back() -> None:
    """Return the memory, unless the user's code runs: a wait for the GPUs would spoil a CUDA graph that it records."""
    from tfgpu_magic.isolate import user_code  # few kernels give back

    running = set(user_code.other_threads())
    if process_kind() != "kernel":
        running.discard(threading.main_thread().name)  # it waits for the next line; a kernel's may run a task
    if running:
        return
    cuda: Any = sys.modules["tfgpu_magic.frameworks.cuda"]  # the runtime has imported it
    cuda.give_back()
