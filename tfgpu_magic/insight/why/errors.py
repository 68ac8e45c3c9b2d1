"""Finds in a cell's error, and in those that it came from, what is said of missing memory. It keeps no error."""

from __future__ import annotations

import contextlib
import re
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfgpu_magic.frameworks import registry
from tfgpu_magic.insight.objects.references import local_variables
from tfgpu_magic.isolate.values.failure import ChildTraceback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgpu_magic.frameworks.shortage import Shortage

MOST = 100
"""How many errors are looked at: a group may have any number."""

_BESIDE = "\nDuring handling of the above exception, another exception occurred:\n"
"""What stands in a traceback between an error and one that came up beside it."""

_REMOTE = ("RemoteTraceback", "_RemoteTraceback")
"""The causes that `multiprocessing` and `concurrent.futures` give to an error that they pass on."""

_MAKE_VARIABLES = ("add_weight", "add_variable", "add_variable_from_reference", "_init_from_args")
"""The functions of Keras and TensorFlow in which variables, and those of optimizers, are made."""

_CODE = re.compile(r"^(?: *\|)? {4,}[^|\s].*$", re.MULTILINE)
"""A line of the program in a traceback, also in that of a group: its text is no error's."""


def shortage(error: BaseException) -> Shortage | None:
    """Return what an error says of missing memory, or None if it does not.

    An error that a program has caught counts if another one was raised *from* it, and as a part of a group. One
    that another came up beside, while it was handled, is the program's own affair.
    """
    for one in _with_causes(error):
        found = registry.shortage(one)
        if found is not None:
            return _with_size(found, one)
    return None


def is_of_call(error: BaseException) -> bool:
    """Return whether an error was raised in another process: of an isolated call, or of a pool of Python's."""
    causes = [one.__cause__ for one in (error, error.__cause__) if one is not None]
    return any(isinstance(one, ChildTraceback) or type(one).__name__ in _REMOTE for one in causes)


def is_for_variable(error: BaseException) -> bool:
    """Return whether memory was missing for a variable that was being made."""
    names = {frame.f_code.co_name for one in _with_causes(error) for frame, _ in traceback.walk_tb(one.__traceback__)}
    return not names.isdisjoint(_MAKE_VARIABLES)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, those that it was raised from, and those of a group."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < MOST:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, ChildTraceback):  # the text of a traceback of another process
            yield RuntimeError(_CODE.sub("", str(one).rpartition(_BESIDE)[2]))  # what it was raised from, in words
            continue
        yield one
        with contextlib.suppress(Exception):  # a class of the user's may have code of its own for them
            waiting += reversed(_parts(one))


def _parts(error: BaseException) -> list[BaseException]:
    """Return what an error was raised from, and the parts of a group."""
    parts = getattr(error, "exceptions", ())  # of an ExceptionGroup, which Python 3.10 has not
    found = [error.__cause__, *(parts if isinstance(parts, tuple) else ())]
    return [one for one in found if isinstance(one, BaseException)]


def _with_size(found: Shortage, error: BaseException) -> Shortage:
    """Return the same with the size of the array that TensorFlow was to copy, which its text does not tell."""
    if found.size is not None:
        return found
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "convert_to_eager_tensor":
            value: Any = local_variables(frame).get("value")
            with contextlib.suppress(Exception):  # it may be of any class
                size, shape = value.nbytes, value.shape
                if type(size) is int and type(shape) is tuple:
                    return replace(found, size=size, shape=shape, dtype=str(value.dtype))
    return found
