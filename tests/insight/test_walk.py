"""The walk finds objects wherever Python keeps them, by the names that people write."""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.insight.passed import Array, Box, found, generating
from tfgpu_magic.insight.names import Name, Step
from tfgpu_magic.insight.walk import NOWHERE, Walk


class Slotted:
    __slots__ = ("_own", "x")

    def __init__(self, x: object) -> None:
        self.x = x


Pair = namedtuple("Pair", "left right")  # as users make them


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
        (lambda array: {("a", 1): array}, "x['a', 1]"),
        (lambda array: {Array: array}, "x[<type>]"),
        (lambda array: {"k" * 100: array}, f"x['{'k' * 35}...']"),
        (lambda array: defaultdict(list, {"a": [array]}), "x['a'][0]"),
        (lambda array: deque([array]), "x[0]"),
        (lambda array: Pair(1, array), "x.right"),
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
        (lambda array: failed(array), "array, in failed(), kept by x"),
        (lambda array: {array}, "x (inside)"),
        (lambda array: iter([array]), "x (inside)"),
        (lambda array: weakref.WeakValueDictionary({"a": array}), None),
    ],
)
def test_it_is_found_by_the_name_that_leads_to_it(make: Callable[[object], object], name: str | None) -> None:
    array = Array()

    assert found(array, x=make(array)) == name


def test_what_a_coroutine_waits_with_is_found() -> None:
    array = Array()
    waiting = started(awaiting([array]))

    assert found(array, x=waiting) == "array[0], in the coroutine x"
    waiting.close()


def test_the_shortest_name_wins_and_others_are_told() -> None:
    array = Array()
    walk = Walk({id(array)})
    walk.start([(Step("deep"), [[array]]), (Step("x"), array), (Step("y"), array), (Step("box"), {"a": array})])
    walk.run(to_the_end=True)

    assert walk.name(walk.place(array)) == Name(("x",))
    assert [name.expression for name in walk.others(walk.place(array))] == ["y", "box['a']", "deep[0][0]"]


def test_another_name_of_what_leads_to_it_is_told() -> None:
    array = Array()
    model = Box(kernel=array)
    walk = Walk({id(array)})
    walk.start([(Step("model"), model), (Step("Out[3]"), model)])
    walk.run(to_the_end=True)

    assert [name.expression for name in walk.others(walk.place(array))] == ["Out[3].kernel"]


def test_other_ways_to_what_wraps_it_are_told() -> None:
    array = Array()
    variable = Slotted(array)
    walk = Walk({id(array)}, wrappers=frozenset({id(Slotted)}))
    walk.start([(Step("v"), variable), (Step("model"), Box(kernel=variable))])
    walk.run(to_the_end=True)

    assert [name.expression for name in walk.others(walk.place(array))] == ["model.kernel.x"]


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
    walk = Walk({id(array)})
    walk.start([(Step("x"), chain)])
    walk.run(to_the_end=True)

    assert walk.name(walk.place(array)).expression == "x" + "[0]" * (2 * sys.getrecursionlimit() + 1)
