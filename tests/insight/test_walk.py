"""The walk finds objects wherever Python keeps them, by the names that people write.

It runs no code of what it passes, keeps none of it, and bears that other threads change it.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tfgpu_magic.insight.objects.names import NOWHERE, Step, make_name
from tfgpu_magic.insight.objects.references import local_variables
from tfgpu_magic.insight.objects.search import collection_paused
from tfgpu_magic.insight.objects.tensors import name_text
from tfgpu_magic.insight.objects.walk import Walk


class Array:
    """What is looked for."""


class Box:
    """A class of a user's, with attributes."""

    shared: object = None

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


def found(array: object, **names: object) -> str | None:
    """Return how the array is called, found from these names."""
    walk = Walk({id(array)}, [sys.modules])
    walk.start((Step(name), value) for name, value in names.items())
    walk.run(to_the_end=True)
    place = walk.place(array)
    return None if place == NOWHERE else name_text(make_name(walk.path(place)))


def generating(array: object) -> Generator[object, None, None]:
    """Return a generator that has a local variable."""
    batch = [array]
    yield len(batch)


class Slotted:
    __slots__ = ("_own", "x")

    def __init__(self, x: object) -> None:
        self.x = x


def closing(array: object) -> Callable[[], object]:
    def function() -> object:
        return array

    return function


async def awaiting(array: object) -> None:
    batch = {"x": array}
    await Pause()
    del batch


class Pause:
    def __await__(self) -> Generator[None, None, None]:
        yield


def failing(array: object) -> None:
    batch = (0, array)
    raise ValueError(len(batch))


def failed(array: object) -> ValueError:
    try:
        failing(array)
    except ValueError as error:
        return error
    raise AssertionError


def started(thing: Any) -> Any:
    thing.send(None)
    return thing


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda array: array, "x"),
        (lambda array: [0, array], "x[1]"),
        (lambda array: {"a": {3: (array,)}}, "x['a'][3][0]"),
        (lambda array: {("a", 1): array}, "x[('a', 1)]"),
        (lambda array: {Array: array}, "x[<type>]"),
        (lambda array: {"k" * 100: array}, f"x['{'k' * 35}...']"),
        (lambda array: defaultdict(list, {"a": [array]}), "x['a'][0]"),
        (lambda array: deque([array]), "x[0]"),
        (lambda array: Box(kernel=array), "x.kernel"),
        (lambda array: Box(_private=[array]), "x._private[0]"),
        (lambda array: Box(inner=Box(inner={"a": array})), "x.inner.inner['a']"),
        (lambda array: Slotted(array), "x.x"),
        (lambda array: SimpleNamespace(kernel=array), "x.kernel"),
        (lambda array: functools.partial(print, array, end=""), "x.args[0]"),
        (lambda array: type("Own", (Box,), {"shared": array, "__module__": __name__}), "x.shared"),
        (lambda array: type("Own", (Box,), {"shared": array, "__module__": __name__})(), "x.shared"),
        (lambda array: Box(method=Box(kernel=array).__init__), "x.method.__self__.kernel"),  # type: ignore[misc]
        (closing, "array, closed over by x"),
        (lambda array: [closing([array])], "array[0], closed over by x[0]"),
        (lambda array: started(generating(array)), "array, in the generator x"),
        (lambda array: started(awaiting([array])), "array[0], in the coroutine x"),
        (lambda array: failed(array), "array, in failed(), kept by x"),
        (lambda array: {array}, "x (inside)"),
        (lambda array: iter([array]), "x (inside)"),
        (lambda array: weakref.WeakValueDictionary({"a": array}), None),
    ],
)
def test_it_is_found_by_the_name_that_leads_to_it(make: Callable[[object], object], name: str | None) -> None:
    array = Array()

    assert found(array, x=make(array)) == name


def names_of(array: object, start: dict[str, object], **more: Any) -> list[str]:
    """Return the names that lead to an array from these, the one that it is shown by first."""
    walk = Walk({id(array)}, **more)
    walk.start([(Step(name), value) for name, value in start.items()])
    walk.run(to_the_end=True)
    place = walk.place(array)
    return [make_name(path).expression for path in (walk.path(place), *walk.other_paths(place))]


def test_the_shortest_name_wins_and_others_are_told() -> None:
    array = Array()

    names = names_of(array, {"deep": [[array]], "x": array, "y": array, "box": {"a": array}})

    assert names == ["x", "y", "box['a']", "deep[0][0]"]


def test_other_names_of_what_leads_to_it_and_other_ways_to_what_wraps_it_are_told() -> None:
    array = Array()
    model, variable = Box(kernel=array), Slotted(array)
    wrappers = frozenset({id(Slotted)})

    assert names_of(array, {"model": model, "Out[3]": model}) == ["model.kernel", "Out[3].kernel"]
    ways = names_of(array, {"v": variable, "model": Box(kernel=variable)}, wrappers=wrappers)
    assert ways == ["v.x", "model.kernel.x"]


def test_it_stops_where_all_is_found() -> None:
    array, far = Array(), Array()
    walk = Walk({id(array)})
    walk.start([(Step("x"), array), (Step("y"), [[far]])])
    walk.run(to_the_end=False)

    assert walk.missing == set()
    assert walk.place(far) == NOWHERE


def test_it_enters_no_module_and_nothing_that_is_closed() -> None:
    array, shut = Array(), [Array()]
    walk = Walk({id(array), id(shut[0])}, [shut])
    walk.start([(Step("x"), [sys, shut, closing])])
    walk.run(to_the_end=True)

    assert walk.missing == {id(array), id(shut[0])}


def test_garbage_is_no_way_to_an_object() -> None:
    gc.collect()
    array = Array()
    cycle: list[object] = [array]
    cycle.append(cycle)
    assert found(array, x=cycle) == "x[0]"
    del cycle

    assert found(array, x=[]) is None
    gc.collect()


def test_a_chain_longer_than_pythons_stack_is_followed_to_its_end() -> None:
    array = Array()
    chain: list[object] = [array]
    for _ in range(2 * sys.getrecursionlimit()):
        chain = [chain]

    assert names_of(array, {"x": chain}) == ["x" + "[0]" * (2 * sys.getrecursionlimit() + 1)]


# --- what is passed is not touched ---


class Touched(BaseException):
    """What is raised where code of an object's runs; no code of ours swallows it."""


def touch(*_: object, **__: object) -> Any:
    raise Touched


def hostile() -> tuple[Any, Any]:
    """Return an object of classes that have code for all that can be asked of them, and a place for one in it.

    The classes are made here, since pytest asks all that a module has.
    """

    class Meta(type):
        """A class whose classes cannot be hashed, compared or asked for an attribute."""

        __hash__ = __eq__ = __instancecheck__ = __subclasscheck__ = __getattribute__ = touch

    class Touchy(metaclass=Meta):
        __getattr__ = __getattribute__ = __repr__ = __str__ = __len__ = __iter__ = __bool__ = touch
        __eq__ = __hash__ = touch
        __class__ = property(touch)
        kernel = property(touch)

    class WithDict:
        __slots__ = ("x",)
        __dict__ = property(touch)

    class TouchyList(list[Any]):
        __iter__ = __getitem__ = __len__ = touch

    class TouchyDict(dict[Any, Any]):
        __iter__ = __getitem__ = __len__ = items = values = keys = touch

    class Spaced:
        pass

    class Key:
        __repr__ = __str__ = touch

    place: Any = TouchyDict()
    touchy = object.__new__(Touchy)
    spaced = Spaced()
    spaced.__dict__ = TouchyDict(inner=TouchyList([place]))
    object.__setattr__(touchy, "inner", {Key(): spaced})
    slotted: Any = WithDict()
    slotted.x = touchy
    return slotted, place


def test_no_code_of_the_users_is_run() -> None:
    array = Array()
    slotted, place = hostile()
    dict.__setitem__(place, "a", array)

    assert found(array, x=[slotted]) == "x[0].x.inner[<Key>].inner[0]['a']"


def test_local_variables_that_are_read_do_not_outlive_their_function() -> None:
    array = Array()
    gone = weakref.ref(array)
    generator = generating(array)
    next(generator)
    assert found(array, x=generator) == "array, in the generator x"
    del array
    generator.close()

    assert gone() is None


def test_what_a_function_has_of_its_own_locals_stays() -> None:
    def function(array: object) -> Iterator[dict[str, object]]:
        yield locals()

    array = Array()
    generator = function(array)
    mine = next(generator)
    found(array, x=generator)

    assert mine == {"array": array}

    def making(_: object) -> Iterator[list[str]]:
        exec("made = 41")
        yield sorted(locals())
        yield sorted(locals())

    maker = making(array)
    before = next(maker)
    found(array, x=maker)

    assert next(maker) == before


def test_another_thread_may_change_what_is_passed() -> None:
    array, over = Array(), threading.Event()
    changing: dict[Any, Any] = dict.fromkeys(range(10_000)) | {"a": array}

    def change() -> None:
        while not over.is_set():
            changing[-1] = changing.pop(-1, None)

    thread, interval = threading.Thread(target=change), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        with collection_paused():  # as every search is made
            names = {found(array, x=changing) for _ in range(9)}
    finally:
        over.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert names == {"x['a']"}


def test_very_many_plain_things_hide_nothing_and_a_walk_that_gives_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfgpu_magic.insight.objects.walk.MOST", 1000)
    array, records = Array(), [{"text": f"{number}", "words": (number, "x")} for number in range(3000)]
    gc.collect()  # a tuple of plain things is not tracked any more then

    walk = Walk({id(array)})
    walk.start([(Step("records"), [tuple(one["words"]) for one in records]), (Step("model"), [[[[array]]]])])
    gc.collect()
    walk.run(to_the_end=True)
    assert (walk.missing, walk.gave_up) == (set(), False)

    numpy = pytest.importorskip("numpy")
    within = numpy.array([array, None], dtype=object)
    held = [(within, 1), {"x": within}]
    gc.collect()
    monkeypatch.setattr("tfgpu_magic.insight.objects.walk.MOST", 10**6)
    assert found(array, held=held) is not None

    monkeypatch.setattr("tfgpu_magic.insight.objects.walk.MOST", 1000)
    walk = Walk({id(array)})
    walk.start([(Step("many"), [[[]] for _ in range(3000)]), (Step("model"), [[[[array]]]])])
    walk.run(to_the_end=True)
    assert (walk.missing, walk.gave_up) == ({id(array)}, True)


def test_a_function_in_a_debugger_keeps_its_variables() -> None:
    def work() -> int:
        kept = 5
        assert kept
        return kept

    def trace(frame: Any, *_: object) -> Any:
        if frame.f_code is work.__code__:
            local_variables(frame)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert work() == 5
    finally:
        sys.settrace(before)
