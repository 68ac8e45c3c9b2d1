"""What objects refer to, and what is written for the way there: an attribute, a key, an index, a name.

Most objects need no more than Python's own answer. But a function refers to all names of its module, which are no part
of it; a generator's variables have names that the garbage collector does not tell; a class of a package leads into all
of that package.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
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

from tfgpu_magic.frameworks.objects import (
    attributes,
    class_name,
    is_a,
    is_subclass,
    is_users_class,
    items,
    namespace,
)
from tfgpu_magic.frameworks.tensorflow import keras
from tfgpu_magic.frameworks.tensorflow.containers import is_graph_node, is_wrapper, unwrap
from tfgpu_magic.insight.objects.names import Step

Child: TypeAlias = "tuple[Step | None, object]"
"""What an object refers to, after the step that leads there, or after None if `Labels` has the step."""

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


def children_of(kind: type) -> Callable[[Any], Iterator[Child]] | None:
    """Return the function that yields what a class's objects refer to, or None if Python's own answer is enough."""
    if id(kind) in _CHILDREN:
        return _CHILDREN[id(kind)]
    if is_subclass(kind, type):
        return lambda one: (_of_any if is_users_class(one) else _of_nothing)(one)
    if is_subclass(kind, ModuleType) or is_graph_node(kind):  # a lazy module; a graph has what it has captured
        return _of_nothing
    if is_subclass(kind, BaseException):
        return _of_exception
    if keras.has_parts(kind):
        return _of_keras
    if is_wrapper(kind):
        return _of_stand_in
    return _of_ndarray if kind is getattr(sys.modules.get("numpy"), "ndarray", None) else None


def of_frame(frame: FrameType, running: str = "") -> Iterator[Child]:
    """Yield the variables of a function, then what it was computing.

    Args:
        frame: the function's frame.
        running: what follows its name if it is running now.
    """
    name = frame.f_code.co_name
    within = f"in {'the cell' if name == '<module>' else f'{name}()'}{running}"
    for variable, value in local_variables(frame).items():
        yield Step(variable, within), value
    for value in gc.get_referents(frame):
        yield Step("", within), value


def _of_function(function: FunctionType) -> Iterator[Child]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        for value in gc.get_referents(cell):  # none if it is empty
            yield Step(name, "closed over by {}", function.__name__), value
    yield Step(".__defaults__"), function.__defaults__
    yield Step(".__kwdefaults__"), function.__kwdefaults__
    yield from _of_any(function)


def _of_exception(error: BaseException) -> Iterator[Child]:
    for name in ("__traceback__", "__cause__", "__context__"):
        yield Step(), vars(BaseException)[name].__get__(error)
    yield from _of_any(error)


def _of_traceback(traceback: TracebackType) -> Iterator[Child]:
    yield from of_frame(traceback.tb_frame)
    yield Step(), traceback.tb_next


def _of_suspended(within: str, thing: Any, frame: FrameType | None) -> Iterator[Child]:
    if frame is not None:  # it has not ended
        for variable, value in local_variables(frame).items():
            yield Step(variable, within, thing.__name__), value
        for value in (*gc.get_referents(frame), *gc.get_referents(thing)):
            yield Step("", within, thing.__name__), value


def _of_keras(thing: object) -> Iterator[Child]:
    for text, value in keras.parts(thing):
        yield Step(text), value
    yield from _of_any(thing)


def _of_stand_in(thing: object) -> Iterator[Child]:
    yield Step(), unwrap(thing)
    yield from _of_any(thing)


def _of_ndarray(array: Any) -> Iterator[Child]:
    if array.dtype.char == "O":
        for number, value in enumerate(array.flat):
            yield Step(f".flat[{number}]"), value


def _of_any(thing: object) -> Iterator[Child]:
    for value in gc.get_referents(thing):
        yield None, value


def _of_nothing(_: object) -> Iterator[Child]:
    return iter(())


_CHILDREN: dict[int, Callable[[Any], Iterator[Child]]] = {
    id(FunctionType): _of_function,
    id(TracebackType): _of_traceback,
    id(GeneratorType): lambda one: _of_suspended("in the generator {}", one, one.gi_frame),
    id(CoroutineType): lambda one: _of_suspended("in the coroutine {}", one, one.cr_frame),
    id(AsyncGeneratorType): lambda one: _of_suspended("in the generator {}", one, one.ag_frame),
}
"""By the id of the class: one of the user's need not have a hash."""


def local_variables(frame: FrameType) -> dict[str, object]:
    """Return a frame's local variables by their names. A module's are global, and none of them is local.

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


_INNER = Step(inner=True)
_NOTHING = Step()
_WRITABLE = frozenset(map(id, (str, int, float, bool, bytes, type(None))))
"""The ids of the classes of keys that are written as they are."""
_LONGEST = 40
"""Characters of a key."""


class Labels:
    """The steps from objects to what they refer to. Each object's are found once. It keeps no object."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], dict[int, Step]] = {}

    def step(self, owner: object | None, holder: object, held: object) -> Step:
        """Return the step from an object to one that it refers to.

        Args:
            owner: what refers to the first; None if that is not known.
            holder: the first object.
            held: what it refers to.
        """
        key = (id(owner), id(holder))
        if key not in self._known:
            self._known[key] = _from_namespace(owner, holder) or _steps(holder)
        step = self._known[key].get(id(held))
        if step is None:
            return _NOTHING if is_a(holder, type) and is_a(held, dict) else _INNER
        return step


def _from_namespace(owner: object | None, holder: Any) -> dict[int, Step]:
    """Return the steps to the attributes of an object from the dictionary that has them."""
    if owner is None or not is_a(holder, dict) or not (namespace(owner) is holder or is_a(owner, type)):
        return {}
    kind: Any = owner if is_a(owner, type) else type(owner)
    return _attributes(holder, hides=not is_users_class(kind))


def _steps(holder: Any) -> dict[int, Step]:
    """Return the steps to all that an object refers to, by the ids of those."""
    kind: type = type(holder)
    children = children_of(kind)
    own = _first((value, step) for step, value in (children(holder) if children else ()) if step is not None)
    # What an object's class and its dictionary have, it has itself.
    through = {id(namespace(holder)): _NOTHING} | ({} if is_a(holder, type) else {id(kind): _NOTHING})
    return through | _attributes(attributes(holder), hides=not is_users_class(kind)) | _elements(holder) | own


def _elements(holder: Any) -> dict[int, Step]:
    """Return the steps to the elements of a container. A step into a set cannot be written."""
    if is_a(holder, dict):
        return _first((value, Step(f"[{_key_text(key)}]")) for key, value in items(holder))
    for kind in (list, tuple, deque):
        if is_a(holder, kind):
            return _first((value, Step(f"[{number}]")) for number, value in enumerate(list(kind.__iter__(holder))))
    return {}


def _attributes(names: Mapping[Any, object], *, hides: bool) -> dict[int, Step]:
    """Return the steps to attributes. In other people's classes, a name with an underscore is not for users."""
    return _first(
        (value, _INNER if hides and name.startswith("_") and not name.endswith("__") else Step(f".{name}"))
        for name, value in items(names)
        if type(name) is str
    )


def _first(steps: Iterable[tuple[object, Step]]) -> dict[int, Step]:
    """Return the first step to each object, one that can be written before one that cannot."""
    found: dict[int, Step] = {}
    for held, step in steps:
        if id(held) not in found or (found[id(held)].inner and not step.inner):
            found[id(held)] = step
    return found


def _key_text(key: object) -> str:
    """Return a key as it is written between brackets, or the name of its class if the key has code of its own."""
    if not all(id(type(part)) in _WRITABLE for part in (key if type(key) is tuple else (key,))):
        return f"<{class_name(type(key))}>"
    text = repr(key)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]}...{text[-1]}"
