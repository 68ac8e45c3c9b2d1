"""In a cell's process: an IPython that runs the one cell, sends its displays home, and keeps its value."""

from __future__ import annotations

import builtins
import contextlib
import linecache
import os
import pickle
import socket
import sys
import threading
import types
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Any as AnyTrait
from traitlets import Type
from traitlets.config import Config

from tfgpu_magic import magic
from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.isolate.process import wire
from tfgpu_magic.isolate.process.infant import Answer, give
from tfgpu_magic.isolate.process.order import RETURNED, SHOW, Facts, Order
from tfgpu_magic.isolate.values import failure, pickling, plain
from tfgpu_magic.isolate.values.pickling import Pickled


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """What a cell's process must know of the cell.

    Attributes:
        source: its text.
        number: its number in the notebook.
        outputs: the names to bring back.
        imports: the names that its imports bind.
        shell: traits of the notebook's shell that the cell's has too.
        traceback: the mode of its tracebacks.
        cells: the notebook's cells, for tracebacks that go through functions of theirs: number and text, by the name
            that the compiler knows them by.
    """

    source: str
    number: int
    outputs: tuple[str, ...] = ()
    imports: frozenset[str] = frozenset()
    shell: Mapping[str, object]
    traceback: str = "Context"
    cells: Mapping[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """What came of a cell.

    Attributes:
        stays: names that it has bound and that stay behind.
        lacks: names to bring back that it has not bound.
        kept: why something cannot come home, by name; the value's name is empty.
        shown: how its value is displayed there, data and metadata; None where it is not.
        failed: whether it raised.
        values: how many of the answer's parts are values; the others are its error.
    """

    stays: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    kept: Mapping[str, str]
    shown: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    failed: bool
    values: int


class Publisher(DisplayPublisher):  # type: ignore[misc,unused-ignore]  # IPython's
    """Sends displays home, each at its place among the text."""

    home: Home

    def publish(
        self,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        source: object = None,
        *,
        transient: Mapping[str, Any] | None = None,
        update: bool = False,
        **_: object,
    ) -> None:
        """Show a display, as `IPython.display.publish_display_data` has it."""
        del source
        bundle = {mime: part for mime, part in data.items() if mime != WIDGET}
        self.home.show({"data": bundle, "metadata": metadata or {}, "transient": transient or {}, "update": update})

    def clear_output(self, wait: bool = False) -> None:
        """Clear what the cell has shown."""
        self.home.show({"clear": wait})


_WIDGETS_STAY = "a widget lives in the process that made it."
WIDGET = "application/vnd.jupyter.widget-view+json"
"""A widget lives in a process's comms, which this one has not; its text is shown instead."""


class Hook(DisplayHook):  # type: ignore[misc,unused-ignore]  # IPython's
    """Keeps the last value; those before it are shown."""

    value: Any = None
    shell: Any

    def __call__(self, result: Any = None) -> None:
        """Take a value that a cell displays."""
        if self.value is not None:
            self.shell.display_pub.publish(*self.shell.display_formatter.format(self.value))
        self.value = result


class CellShell(InteractiveShell):  # type: ignore[misc,unused-ignore]  # IPython's
    """Runs one cell; its traceback is kept and not printed."""

    display_pub_class = Type(Publisher)
    displayhook_class = Type(Hook)
    shown = AnyTrait(())

    def enable_gui(self, gui: object = None) -> None:
        """Have no event loop of a GUI: `%matplotlib inline` asks for none."""

    def ask_exit(self) -> NoReturn:
        """Do what `exit()` asks: this process is the cell's."""
        raise SystemExit

    def show_usage_error(self, exc: object) -> None:
        """Leave it to the notebook's shell, which has the error too."""

    def _showtraceback(self, etype: object, evalue: object, stb: Sequence[str]) -> None:
        del etype, evalue
        self.shown = tuple(stb)


class Home:
    """The way home for displays. One at a time: a thread that shows waits until it is shown."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._shown = 0
        self._here = os.getpid()

    def show(self, message: Mapping[str, Any]) -> None:
        """Show it, after all that was printed before and before all that is printed next."""
        sys.stdout.flush()
        sys.stderr.flush()
        if os.getpid() != self._here:  # a fork of the cell's process: what is answered there is not for it
            wire.send(self._connection, SHOW, [memoryview(pickle.dumps(message))])
            return
        with self._lock:
            self._shown += 1
            number = str(self._shown).encode()
            wire.send(self._connection, SHOW, [memoryview(pickle.dumps(message)), number])
            # One that was interrupted here has left behind what it waited for.
            while (said := wire.receive(self._connection)) is not None and bytes(said.parts[0]) != number:
                pass


def cell(connection: socket.socket, order: Order, work: Sequence[memoryview]) -> Answer:
    """Run a cell: the runner of `%%tf_gpu isolate`."""
    settings = order.settings["cell"]
    assert isinstance(settings, CellSettings)  # noqa: S101  # by our own kernel
    shell = _shell(connection, settings)
    namespace = pickling.main_namespace()
    namespace.update(_inputs(work))  # now, because a new shell resets `_` and `In`
    reporter = magic.attach(shell).reporter
    # A %load_ext in the cell must not apply the kernel's policy over that of the cell.
    shell.extension_manager.loaded.add("tfgpu_magic")
    before = dict(namespace)
    result = shell.run_cell(settings.source, store_history=False)
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        shell.displayhook()  # shows a value that came before it
    value = shell.displayhook.value
    bound = {name: namespace[name] for name in settings.outputs if name in namespace}
    given, kept = _give(value, bound, order.imported)
    shown = None if value is None or ends_quietly(settings.source) else shell.display_formatter.format(value)
    if "" in kept and shown is not None:
        shell.display_pub.publish(*shown)
    facts = CellFacts(
        stays=tuple(_stays(before, namespace, {*settings.outputs, *settings.imports, *shell.user_ns_hidden})),
        lacks=tuple(name for name in settings.outputs if name not in namespace),
        kept=kept,
        shown=shown,
        failed=error is not None,
        values=len(given.parts),
    )
    parts = list(given.parts)
    if error is not None:
        told, pickled = failure.capture(error, shown=shell.shown, reduce=plain.reduce)
        parts += [memoryview(pickle.dumps(told)), *pickled.parts]
    reporter.stop()  # which takes its file from the board: nothing runs at this process's exit
    return RETURNED, Facts(more={"cell": facts}), parts


def ends_quietly(source: str) -> bool:
    """Whether a cell's last expression ends with a semicolon, so that its value is not shown."""
    quiet: bool = DisplayHook.semicolon_at_end_of_expression(source)  # type: ignore[no-untyped-call]  # IPython's
    return quiet


def _shell(connection: socket.socket, settings: CellSettings) -> Any:
    config = Config({"HistoryManager": {"enabled": False}})
    main = sys.modules["__main__"]
    shell: Any = CellShell.instance(config=config, user_module=main, user_ns=vars(main), **settings.shell)
    shell.display_pub.home = Home(connection)
    shell.execution_count = settings.number
    with contextlib.suppress(ValueError):  # a mode of a newer IPython than this process's: there is none
        shell.InteractiveTB.set_mode(settings.traceback)
    for name, (number, text) in settings.cells.items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        shell.compile._filename_map[name] = number
    warnings.filterwarnings("ignore", "To exit: use", UserWarning)  # the notebook's shell says it
    builtins.input = _cannot_ask
    import getpass

    getpass.getpass = _cannot_ask
    return shell


def _inputs(work: Sequence[memoryview]) -> dict[str, object]:
    """The notebook's names that came along."""
    try:
        inputs: dict[str, object] = pickling.load(work)
    except Exception as error:  # a module that is not found here; whatever an object's own __setstate__ raises
        raise Unpicklable(
            f"What the cell reads cannot be made again in its process ({type(error).__name__}: {error}). "
            "Make it in the cell, or name with -i what to send."
        ) from None
    return inputs


def _give(value: object, bound: Mapping[str, object], imported: frozenset[str]) -> tuple[Pickled, dict[str, str]]:
    """Pickle the cell's value and the names to bring back, together where that can be; and say what cannot come."""
    kept = {name: _WIDGETS_STAY for name, part in {"": value, **bound}.items() if _is_widget(part)}
    try:
        if not kept:
            return give({"": value, **bound}, "", imported), {}
    except Unpicklable:
        pass
    for name, part in {"": value, **bound}.items():
        try:
            if name not in kept:
                give(part, name or "its value", imported)
        except Unpicklable as error:
            kept[name] = str(error)
    rest = {name: part for name, part in {"": value, **bound}.items() if name not in kept}
    return give(rest, "", imported), kept


def _is_widget(value: object) -> bool:
    return any(base.__module__.partition(".")[0] == "ipywidgets" for base in type(value).__mro__)


def _stays(before: Mapping[str, object], now: Mapping[str, object], known: set[str]) -> list[str]:
    """The names that the cell has bound, and that do not come home; modules are had by an import anywhere."""
    return [
        name
        for name, value in now.items()
        if name not in known
        and not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and not (name in before and before[name] is value)
    ]


def _cannot_ask(*_: object, **__: object) -> NoReturn:
    raise StdinNotImplementedError(
        "An isolated cell cannot ask for input: ask in a cell before it, and it reads the answer."
    )
