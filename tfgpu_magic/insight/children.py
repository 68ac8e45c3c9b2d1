"""What objects refer to, with what leads there, for the kinds of objects that need more than Python's own answer.

A function refers to all names of its module, which are no part of it; a generator's variables have names that the
garbage collector does not tell; a class of a package leads into all of that package.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from inspect import CO_OPTIMIZED
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    TracebackType,
    WrapperDescriptorType,
)
from typing import Any, TypeAlias
from weakref import ReferenceType

from tfgpu_magic.frameworks import keras
from tfgpu_magic.frameworks.objects import derives, is_users
from tfgpu_magic.frameworks.tensorflow_containers import container, of_graph, stands_in
from tfgpu_magic.insight.names import Kind, Scope, Step

Child: TypeAlias = "tuple[Step | None, object]"
"""What an object refers to, and what leads there; None where its label says that."""

LEAVES = frozenset(
    map(
        id,
        (
            *(bool, bytearray, bytes, complex, float, int, range, slice, str, type(None), type(...)),
            *(BuiltinFunctionType, CodeType, GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType),
            *(FrameType, ModuleType, ReferenceType, WrapperDescriptorType, memoryview, type(NotImplemented)),
        ),
    )
)
"""The ids of classes whose objects are not entered: they hold nothing, or what is entered elsewhere."""


def children_of(kind: type) -> Callable[[Any], Iterable[Child]] | None:
    """Return the function that gives what the objects of a class refer to; None where Python's own answer does."""
    if id(kind) in _CHILDREN:
        return _CHILDREN[id(kind)]
    if derives(kind, type):
        return _of_class
    if derives(kind, ModuleType):  # of a class of its own, if it is loaded late
        return lambda _: ()
    if derives(kind, BaseException):
        return _of_exception
    if keras.has_parts(kind):
        return _of_keras
    if stands_in(kind):
        return _of_stand_in
    if of_graph(kind):  # the graph has itself what it has captured
        return lambda _: ()
    if kind is getattr(sys.modules.get("numpy"), "ndarray", None):
        return _of_ndarray
    return None


def of_frame(frame: FrameType, kind: Kind) -> Iterator[Child]:
    """Return the variables of a function that runs or has run, then what it was computing."""
    name = frame.f_code.co_name
    for variable, value in local_variables(frame).items():
        yield Step(variable, Scope(kind, name)), value
    for value in gc.get_referents(frame):
        yield Step(scope=Scope("temporary", name)), value


def _of_function(function: FunctionType) -> Iterator[Child]:
    scope = Scope("closure", function.__name__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        for value in gc.get_referents(cell):  # none where it is empty
            yield Step(name, scope), value
    yield Step(".__defaults__"), function.__defaults__
    yield Step(".__kwdefaults__"), function.__kwdefaults__
    for value in gc.get_referents(function):
        yield None, value


def _of_exception(error: BaseException) -> Iterator[Child]:
    for name in ("__traceback__", "__cause__", "__context__"):
        yield Step(), vars(BaseException)[name].__get__(error)
    for value in gc.get_referents(error):
        yield None, value


def _of_traceback(traceback: TracebackType) -> Iterator[Child]:
    yield from of_frame(traceback.tb_frame, "function")
    yield Step(), traceback.tb_next


def _suspended(kind: Kind, thing: Any, frame: FrameType | None) -> Iterator[Child]:
    scope = Scope(kind, thing.__name__)
    if frame is not None:  # it has not ended
        for variable, value in local_variables(frame).items():
            yield Step(variable, scope), value
        for value in (*gc.get_referents(frame), *gc.get_referents(thing)):
            yield Step(scope=scope), value


def _of_class(kind: type) -> Iterator[Child]:
    if is_users(kind):
        for value in gc.get_referents(kind):
            yield None, value


def _of_keras(thing: object) -> Iterator[Child]:
    for text, value in keras.parts(thing):
        yield Step(text), value
    for value in gc.get_referents(thing):
        yield None, value


def _of_stand_in(thing: object) -> Iterator[Child]:
    yield Step(), container(thing)
    for value in gc.get_referents(thing):
        yield None, value


def _of_ndarray(array: Any) -> Iterator[Child]:
    if array.dtype.char == "O":
        for number, value in enumerate(array.flat):
            yield Step(f".flat[{number}]"), value


_CHILDREN: dict[int, Callable[[Any], Iterable[Child]]] = {
    id(FunctionType): _of_function,
    id(TracebackType): _of_traceback,
    id(GeneratorType): lambda one: _suspended("generator", one, one.gi_frame),
    id(CoroutineType): lambda one: _suspended("coroutine", one, one.cr_frame),
    id(AsyncGeneratorType): lambda one: _suspended("generator", one, one.ag_frame),
}
"""By the id of the class: one of the user's need not have a hash."""


def local_variables(frame: FrameType) -> dict[str, object]:
    """Return a frame's local variables by their names; none of a module's, which are its global ones.

    Before Python 3.13 a frame keeps the dictionary that it gives, and with it all values, until it is asked again or
    ends. So these are taken out, unless somebody else has it: a debugger, or `locals()` in that function.
    """
    code = frame.f_code
    if not code.co_flags & CO_OPTIMIZED:
        return {}
    given = frame.f_locals
    found = dict(given)
    if type(given) is dict and sys.getrefcount(given) <= _OURS and frame.f_trace is None:
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):  # others are made by `exec`
            given.pop(name, None)
    return found


_OURS = 3
"""References to the dictionary of locals while only its frame has it: the frame's, ours, and that of the question."""
