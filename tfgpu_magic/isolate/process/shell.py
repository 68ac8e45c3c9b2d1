"""The IPython of a worker process: it runs a cell or a call, and sends its displays to the kernel."""

from __future__ import annotations

import builtins
import contextlib
import getpass
import inspect
import io
import itertools
import linecache
import numbers
import os
import pickle
import socket
import sys
import threading
import tokenize
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Any as AnyTrait
from traitlets import Type
from traitlets.config import Config

from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.ground.message import Message, join_lines, msg, paragraph
from tfgpu_magic.isolate.call import AGAIN, SHOW, SHOWN, CellText, Outcome
from tfgpu_magic.isolate.process import wire, worker
from tfgpu_magic.isolate.process.interrupt import deferring_interrupts
from tfgpu_magic.isolate.values import changes, failure, pickling, plain
from tfgpu_magic.isolate.values.pickling import Pickled, Reduce
from tfgpu_magic.machine import host_memory

WIDGET = "application/vnd.jupyter.widget-view+json"
"""The MIME type of widgets, which need comms: this process has none, and the widget's text is shown instead."""

Piece = tuple[tuple[str, ...], Pickled]
"""A pickle of a dict of what is brought back, and the names in it."""

_EXTENSION = "tfgpu_magic"  # the name by which users load it

_CLASSES_STAY = msg(
    "it is a class of the notebook, which is not changed from there. Define it anew in the cell to get another."
)
_WIDGETS_STAY = msg("a widget lives in the process that made it.")


class CellPublisher(DisplayPublisher):  # type: ignore[misc,unused-ignore]  # IPython's
    """A publisher that sends displays to the kernel, each in order with the text."""

    channel: DisplayChannel

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
        """Show a display, with the arguments of `IPython.display.publish_display_data`."""
        del source
        bundle = {mime: part for mime, part in data.items() if mime != WIDGET}
        message = {"data": bundle, "metadata": metadata or {}, "transient": transient or {}, "update": update}
        self.channel.show(as_json(message))

    def clear_output(self, wait: bool = False) -> None:
        """Clear what the cell has shown."""
        self.channel.show({"clear": wait})


class Hook(DisplayHook):  # type: ignore[misc,unused-ignore]  # IPython's
    """A display hook that keeps the last value, and shows those before it."""

    value: Any = None
    shell: Any

    def __call__(self, result: Any = None) -> None:
        """Keep a value that the cell displays, and show the one before."""
        if self.value is not None:
            self.shell.display_pub.publish(*display_of(self.shell.display_formatter, self.value))
        self.value = result


class DisplayChannel:
    """The channel for displays to the kernel. A thread that shows a display waits until the kernel has shown it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._shown = 0
        self._asking = threading.Lock()  # held by the thread that waits until its display is shown
        self._pid, self._closed = os.getpid(), False

    def show(self, message: Mapping[str, Any]) -> None:
        """Show it, after all that was printed before and before all that is printed next."""
        sys.stdout.flush()
        sys.stderr.flush()
        if os.getpid() != self._pid:  # a fork of the cell's process: the kernel's replies are not for it
            wire.send(self._connection, SHOW, [memoryview(pickle.dumps(message))])
            return
        with self._asking, deferring_interrupts():  # what is printed after an interrupt is shown after this, too
            self._shown += 1
            number = str(self._shown).encode()
            parts = [pickle.dumps(message)] if self._closed else [pickle.dumps(message), number]
            wire.send(self._connection, SHOW, parts)
            # A call of this method that was left by an exception has left a reply unread.
            while not self._closed and (reply := wire.receive(self._connection)) is not None:
                if reply.kind == AGAIN:
                    wire.send(self._connection, SHOW, parts)
                if reply.kind == SHOWN and bytes(reply.parts[0]) == number:
                    return

    def close(self) -> None:
        """Wait for no display from now on: what arrives is for the thread that ends the call."""
        with self._asking:
            self._closed = True


def display_of(formatter: Any, value: object) -> tuple[Any, Any]:
    """Return how a value is displayed, data and metadata; if that fails, its plain name."""
    try:
        data, metadata = formatter.format(value)
        return as_json(data), as_json(metadata)
    except Exception:  # of the value's own, such as a RecursionError: the cell has run, and its names are to come
        return {"text/plain": object.__repr__(value)}, {}


def as_json(part: Any) -> Any:
    """Return a display's data as plain JSON: an object of another class might not be unpickled in the kernel."""
    if part is None or type(part) in (str, bytes, bool, int, float):
        return part
    if isinstance(part, Mapping):
        return {str(key): as_json(inside) for key, inside in part.items()}
    if isinstance(part, bytes | bytearray | memoryview):
        return bytes(part)
    if isinstance(part, Iterable) and not isinstance(part, str):
        return [as_json(inside) for inside in part]
    if isinstance(part, numbers.Integral):
        return int(part)
    return float(part) if isinstance(part, numbers.Real) else str(part)


class CellShell(InteractiveShell):  # type: ignore[misc,unused-ignore]  # IPython's
    """A shell that runs one cell, and keeps its traceback instead of printing it."""

    isolated = True  # read by `host`
    display_pub_class = Type(CellPublisher)
    displayhook_class = Type(Hook)
    shown = AnyTrait(())

    def enable_gui(self, gui: object = None) -> None:
        """Do nothing: `%matplotlib inline` needs no event loop of a GUI."""

    def ask_exit(self) -> NoReturn:
        """End the cell, as `exit()` asks: this process is the cell's own."""
        raise SystemExit

    def show_usage_error(self, exc: object) -> None:
        """Do nothing: the notebook's shell has the error too, and shows it."""

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """Show a traceback; `inspect` would search all of TensorFlow's modules for each frame that is in no file."""
        cells = (Path(name) for name in list(linecache.cache))
        inspect.modulesbyfile.update({str(name.absolute()): "__main__" for name in cells if not name.exists()})
        super().showtraceback(*args, **kwargs)

    def _showtraceback(self, etype: object, evalue: object, stb: Sequence[str]) -> None:
        del etype, evalue
        self.shown = tuple(stb)


def cell(connection: socket.socket, work: Sequence[memoryview]) -> Outcome:
    """Run a cell, as the runner of `%%tf_gpu isolate`; the first part of `work` is its text."""
    text: CellText = pickle.loads(work[0])  # noqa: S301  # from our own kernel
    shell = _shell(connection, text)
    namespace = pickling.main_namespace()
    namespace.update(_inputs(work[1:], text))  # now, because a new shell resets `_` and `In`
    shell.extension_manager.load_extension(_EXTENSION)
    before, classes = dict(namespace), _classes(namespace)
    hidden = {*shell.user_ns_hidden, *(name for name, part in before.items() if isinstance(part, StandIn))}
    digests = changes.digests({name: part for name, part in before.items() if name not in hidden})
    result = shell.run_cell(text.source, store_history=False)
    worker.ignore_interrupts()
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        shell.displayhook()  # shows a value that came before it
    value = shell.displayhook.value
    same = {name: part for name, part in before.items() if namespace.get(name, ...) is part}
    changed = changes.changed_names(digests, same)
    bound = {name: namespace[name] for name in text.outputs if name in namespace}
    if error is not None:  # what it has not changed is in the notebook as it is there, and better: no handle
        bound = {name: part for name, part in bound.items() if name not in same or name in changed}
    unbound = (name for name in text.outputs if name not in namespace)
    kept = {name: msg("the cell has not bound {name}.", name=name) for name in unbound}
    own = {name for name, part in bound.items() if isinstance(part, type) and before.get(name) is part}
    own |= {name for name, (kind, attributes) in classes.items() if _differ(attributes, _attributes(kind))}
    kept |= dict.fromkeys(sorted(own), _CLASSES_STAY)
    kept |= {name: _WIDGETS_STAY for name, part in {"": value, **bound}.items() if _is_widget(part)}
    values = {name: part for name, part in {"": value, **bound}.items() if name not in kept}
    given, refused = _pickle_together(values)
    kept |= refused
    display = None
    if value is not None and not _ends_quietly(text.source):
        display = display_of(shell.display_formatter, value)
    if "" in kept and display is not None:
        shell.display_pub.publish(*display)
    shell.display_pub.channel.close()
    outcome = Outcome(
        failure=() if error is None else failure.dump(error, shown=shell.shown),
        kept=kept,
        stays=tuple(_stays(before, namespace, {*text.outputs, *text.passing, *shell.user_ns_hidden})),
        changed=tuple(name for name in changed if name not in {*values, *kept}),
        display=display,
    )

    def with_pieces(pieces: Sequence[Piece], in_pieces: Callable[[], Outcome] | None = None) -> Outcome:
        parts = tuple(part for _, pickled in pieces for part in pickled.parts)
        brought = tuple((names, len(pickled.parts)) for names, pickled in pieces)
        return replace(outcome, values=parts, given=brought, in_pieces=in_pieces)

    with contextlib.suppress(Exception):  # the cell may have changed its shell in any way
        shell.extension_manager.unload_extension(_EXTENSION)  # removes its report from the board: no exit handler runs
    return with_pieces(given, lambda: with_pieces(_pickle_each(values)[0]))


def call(connection: socket.socket, work: Sequence[memoryview]) -> Outcome:
    """Call a function, as the runner of calls from a process where IPython runs; its displays go to the kernel."""
    path = list(sys.path)
    shell = make(connection, types.ModuleType("tfgpu_magic_call"))  # the call's own names are not IPython's to fill
    sys.path[:] = path
    outcome = worker.call(connection, work)
    shell.events.trigger("post_execute")  # shows figures that are left open, as the end of a cell does
    shell.display_pub.channel.close()
    return outcome


def make(connection: socket.socket, module: types.ModuleType, **traits: object) -> Any:
    """Make this process's IPython, which sends displays over a connection, and whose names are those of a module."""
    config = Config({"HistoryManager": {"enabled": False}})
    shell: Any = CellShell.instance(config=config, user_module=module, user_ns=vars(module), **traits)
    shell.display_pub.channel = DisplayChannel(connection)
    return shell


def _shell(connection: socket.socket, cell: CellText) -> Any:
    shell = make(connection, sys.modules["__main__"], **cell.shell)
    shell.execution_count = cell.number
    with contextlib.suppress(ValueError):  # a mode that only a newer IPython has
        shell.InteractiveTB.set_mode(cell.traceback)
    for name, (number, text) in cell.cells.items():
        entry = (len(text), None, text.splitlines(keepends=True), name)
        linecache.cache[name] = entry
        if hasattr(linecache, "_ipython_cache"):  # from which IPython 7 fills the other again
            linecache._ipython_cache[name] = entry
        else:
            shell.compile._filename_map[name] = number
    warnings.filterwarnings("ignore", "To exit: use", UserWarning)  # the notebook's shell warns itself
    builtins.input = getpass.getpass = _cannot("ask for input: ask in a cell before it, and it reads the answer.")
    sys.breakpointhook = _cannot("stop for a debugger, which asks for input: run it as a plain cell for that.")
    return shell


class StandIn:
    """A stand-in for a value of the notebook's that could not be sent: whatever is done with it raises why."""

    def __init__(self, why: Message) -> None:
        vars(self)["why"] = why

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise Unpicklable(paragraph((vars(self)["why"], "Make it in the cell.")))

    __getattr__ = __setattr__ = __delattr__ = __repr__ = __format__ = __reduce_ex__ = _refuse
    __call__ = __bool__ = __len__ = __iter__ = __next__ = __await__ = __enter__ = __exit__ = _refuse
    __getitem__ = __setitem__ = __delitem__ = __contains__ = __index__ = __int__ = __float__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __matmul__ = __neg__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse


def _inputs(work: Sequence[memoryview], cell: CellText) -> dict[str, object]:
    """Return the notebook's names that were sent with the cell, and stand-ins for others that it may do without."""
    ends = itertools.accumulate(cell.sent.values())
    inputs, errors = pickling.load_each(
        {name: work[end - count : end] for (name, count), end in zip(cell.sent.items(), ends, strict=True)}
    )
    text = "{name} cannot be made again in the cell's process ({kind}: {error})."
    missing = {name: msg(text, name=name, kind=type(one).__name__, error=one) for name, one in errors.items()}
    if refused := [why for name, why in missing.items() if name in cell.surely]:
        raise Unpicklable(join_lines((*refused, pickling.ADVICE)))
    return inputs | {name: StandIn(why) for name, why in {**cell.unsent, **missing}.items()}


def _pickle_together(values: Mapping[str, object]) -> tuple[list[Piece], dict[str, Message]]:
    """Pickle what is brought back, together if possible; return the pickles, and why the rest stays, by name."""
    try:
        together = _pickled(dict(values), "")
        host_memory.check_room(together.size)
    except (Unpicklable, OSError):
        pieces, refused = _pickle_each(values)
    else:
        return [(tuple(values), together)], {}
    rest, size = dict[str, object](), 0
    for (name,), pickled in sorted(pieces, key=lambda piece: piece[1].size):  # the largest stay if there is no room
        size += pickled.size
        try:
            host_memory.check_room(size)
            rest[name] = values[name]
        except OSError as error:
            refused[name] = msg("{why}", why=error.strerror)
    return [(tuple(rest), _pickled(rest, "", plain.with_weights))], refused


def _pickle_each(values: Mapping[str, object]) -> tuple[list[Piece], dict[str, Message]]:
    """Pickle each value by itself; return the pickles, and why the rest stays, by name."""
    pieces: list[Piece] = []
    refused: dict[str, Message] = {}
    for name, part in values.items():
        for reduce in (plain.reduce, plain.with_weights) if name else (plain.reduce,):
            try:
                _pickled(part, name or "its value", reduce)  # its error names the value
                pieces.append(((name,), _pickled({name: part}, name, reduce)))
                if name in refused:
                    weights = msg("Its weights have come in {name}, as the list that set_weights() takes.", name=name)
                    refused[name] = paragraph((refused[name], weights))
                break
            except Unpicklable as error:
                refused.setdefault(name, error.message)
            except OSError as error:  # no room for its pickle
                refused[name] = msg("{why}", why=error.strerror)
                break
    return pieces, refused


def _pickled(value: object, name: str, reduce: Reduce = plain.reduce) -> Pickled:
    return pickling.dump_self_contained(value, name, reduce=reduce)


def _is_widget(value: object) -> bool:
    return any(str(base.__module__).partition(".")[0] == "ipywidgets" for base in type(value).__mro__)


def _stays(before: Mapping[str, object], now: Mapping[str, object], known: set[str]) -> list[str]:
    """Return the names that the cell has bound and that stay behind, without modules: any process can import those."""
    return [
        name
        for name, value in now.items()
        if name not in known
        and not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and not (name in before and before[name] is value)
    ]


def _classes(namespace: Mapping[str, object]) -> dict[str, tuple[type, dict[str, object]]]:
    """Return the notebook's classes and the classes of its values, with what their attributes are now."""
    named = {name: value for name, value in namespace.items() if isinstance(value, type)}
    kinds = {type(value).__qualname__: type(value) for value in namespace.values()}
    return {name: (kind, _attributes(kind)) for name, kind in (kinds | named).items() if kind.__module__ == "__main__"}


def _attributes(kind: type) -> dict[str, object]:
    """Return a class's own attributes, without those that Python may add at any time."""
    return {name: value for name, value in vars(kind).items() if not name.startswith("__")}


def _differ(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Return whether any attribute is another object than before."""
    return before.keys() != now.keys() or any(now[name] is not value for name, value in before.items())


def _cannot(do: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise StdinNotImplementedError(f"An isolated cell cannot {do}")

    return refuse


def _ends_quietly(source: str) -> bool:
    """Return whether a cell's last expression ends with a semicolon, so that its value is not shown."""
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    try:  # as IPython's display hook does, which before 8.4 has no function for it
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return False
    return any(token.string == ";" for token in [token for token in tokens if token.type not in nothing][-1:])
