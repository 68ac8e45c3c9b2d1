"""Exceptions sent between processes: of their own type where it can be imported, always with the full traceback."""

from __future__ import annotations

import linecache
import pickle
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from tfgpu_magic.errors import Raised
from tfgpu_magic.isolate.values import pickling, plain
from tfgpu_magic.isolate.values.pickling import Pickled
from tfgpu_magic.machine import host_memory


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception of another process.

    Attributes:
        module: the module of its type.
        name: its type's qualified name.
        message: its text.
        text: its traceback, as Python prints it.
        shown: its traceback as IPython shows it, a line each; empty where no IPython ran.
    """

    module: str
    name: str
    message: str
    text: str
    shown: tuple[str, ...] = field(default=())


_SYNTAX = ("msg", "filename", "lineno", "offset", "text", "end_lineno", "end_offset")
"""The attributes of a syntax error besides its arguments; IPython changes them before it shows the error."""


class ChildTraceback(Exception):  # it is no error: it shows where one was raised
    """The traceback in the worker process; it is the cause of the exception that is raised here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def dump(error: BaseException, *, skip: int = 0, shown: Sequence[str] = ()) -> tuple[memoryview, ...]:
    """Return the parts of a pickled exception; what cannot be sent is left out, but never the traceback.

    Args:
        error: the exception.
        skip: how many outer frames of its traceback are of this package.
        shown: the traceback as IPython shows it.
    """
    trace = error.__traceback__
    for _ in range(skip):
        trace = trace.tb_next if trace is not None else None
    kind = type(error)
    failure = Failure(
        module=kind.__module__,
        name=kind.__qualname__,
        message=_text(error),
        text=_traceback_text(error, trace),
        shown=tuple(shown),
    )
    return memoryview(pickle.dumps(failure)), *_pickled(error, failure.message).parts


def _pickled(error: BaseException, message: str) -> Pickled:
    for rebuild in (True,) if isinstance(error, SyntaxError) else (False, True):
        try:
            pickled = pickling.dump_self_contained(_rebuilt(error) if rebuild else error, reduce=plain.reduce)
            again = _own_type(_again(pickled))
            # An __init__ that builds the text from its arguments may build another from that text.
            if type(again) is type(error) and (rebuild or _text(again) == message):
                return pickled
        except Exception:  # noqa: S112  # an odd __init__, a lock inside: the next form leaves it out
            continue
    return pickling.dump(None)


def described(parts: Sequence[memoryview]) -> Failure:
    """Return what the parts of an exception say of it."""
    description: Failure = pickle.loads(parts[0])  # noqa: S301  # from our own process
    return description


def load(parts: Sequence[memoryview]) -> BaseException:
    """Return the exception as it was raised: of its own type, or if that cannot be imported, a `Raised` of its name."""
    failure = described(parts)
    try:
        error = _own_type(pickling.load(parts[1:], pickling.GuardedUnpickler))
    except Exception:  # its module is missing here, or would initialize TensorFlow
        error = None
    if error is None:
        stand_in = type(failure.name.rpartition(".")[2], (Raised,), {"__module__": failure.module})
        error = stand_in(failure.message)
    error.__cause__ = ChildTraceback(_with_source(failure.text))
    return error


_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+), in ')


def _with_source(text: str) -> str:
    """Return a traceback with the source lines of a notebook's functions, which the worker process does not have."""
    lines = text.splitlines()
    completed: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        completed.append(line)
        frame = _FRAME.match(line)
        if frame is not None and not after.startswith("    "):
            source = linecache.getline(frame["file"], int(frame["line"])).strip()
            completed += [f"    {source}"] * bool(source)
    return "\n".join(completed)


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    """An exception in parts, for one that cannot be made by calling its type with its arguments."""

    kind: type[BaseException]
    arguments: tuple[Any, ...]
    state: dict[str, Any]


def _rebuilt(error: BaseException) -> _Rebuilt:
    arguments = tuple(part if _can_travel(part) else repr(part) for part in error.args)
    details = {name: getattr(error, name, None) for name in _SYNTAX} if isinstance(error, SyntaxError) else {}
    state = {name: part for name, part in (details | vars(error)).items() if _can_travel(part)}
    return _Rebuilt(type(error), arguments, state)


def _own_type(loaded: object) -> BaseException | None:
    if isinstance(loaded, _Rebuilt):
        error = loaded.kind.__new__(loaded.kind, *loaded.arguments)
        error.args = loaded.arguments
        for name, part in loaded.state.items():
            setattr(error, name, part)
        return error
    return loaded if isinstance(loaded, BaseException) else None


def _again(pickled: Pickled) -> Any:
    """Unpickle it on trial, from copies: a `__setstate__` may change its memory, which is to be sent as it is."""
    host_memory.check_room(pickled.size)
    return pickling.load([memoryview(bytearray(part)) for part in pickled.parts], pickling.GuardedUnpickler)


def _can_travel(part: object) -> bool:
    try:
        _again(pickling.dump_self_contained(part, reduce=plain.reduce))
    except Exception:  # whatever an object's own __reduce__ or __setstate__ raises
        return False
    return True


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a type's own __str__
        return ""


def _traceback_text(error: BaseException, trace: TracebackType | None) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, trace))
    except Exception as trouble:  # memory has run out, or its __cause__ is odd
        return f"{type(error).__qualname__} (its traceback cannot be told: {type(trouble).__qualname__})"
