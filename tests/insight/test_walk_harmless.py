"""The walk runs no code of what it passes, keeps none of it, and bears that other threads change it."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from tests.insight.passed import Array, Box, found, generating
from tfgpu_magic.insight.search import without_collections


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


def test_what_is_found_and_passed_is_not_kept() -> None:
    array, box = Array(), Box()
    box.x = [array]  # type: ignore[attr-defined]
    before = [sys.getrefcount(one) for one in (array, box, box.x)]  # type: ignore[attr-defined]
    gone = weakref.ref(array)

    assert found(array, x=box) == "x.x[0]"
    assert [sys.getrefcount(one) for one in (array, box, box.x)] == before  # type: ignore[attr-defined]
    del array, box
    assert gone() is None


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
        with without_collections():  # as every search is made
            names = {found(array, x=changing) for _ in range(9)}
    finally:
        over.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert names == {"x['a']"}
