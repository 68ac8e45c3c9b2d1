"""Values cross as they are; what cannot cross is named with its place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.isolate import deeds
from tests.isolate.rig import run
from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.isolate.values import pickling

LOCK = threading.Lock()
LARGE = pickling.APART // 8


def there_and_back(value: Any) -> Any:
    pickled = pickling.dump(value)
    return pickling.load([memoryview(bytearray(part)) for part in pickled.parts])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(LARGE, dtype=np.float64),
        np.asfortranarray(np.arange(2.0 * LARGE).reshape(2, -1)),
        np.arange(4.0 * LARGE)[::2],
        np.arange(2.0 * LARGE).reshape(2, -1).T,
        np.zeros((0, 5)),
        np.array(3.5),
        np.array(["a", None, {}], dtype=object),
        np.zeros(LARGE, dtype=[("a", "i4"), ("b", "f8")]),
        np.arange(LARGE).astype(">i8"),
        np.ma.masked_array(np.arange(LARGE), np.arange(LARGE) % 2 == 1),
        np.datetime64("2020-01-01") + np.arange(LARGE),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}{'F' * array.flags.fnc}",
)
def test_arrays_of_any_kind_come_back_equal_and_writable(array: np.ndarray[Any, Any]) -> None:
    back = there_and_back(array)

    np.testing.assert_array_equal(back, array)
    assert (back.dtype, back.flags.fnc, back.flags.writeable) == (array.dtype, array.flags.fnc, True)


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_read_only_array_stays_read_only(size: int) -> None:
    array = np.arange(float(size))
    array.flags.writeable = False

    assert not there_and_back(array).flags.writeable


def test_large_memory_is_not_copied_into_the_stream() -> None:
    array = np.zeros(100 * LARGE)
    pickled = pickling.dump({"x": array, "y": [array[:5], array]})

    assert len(pickled.stream) < 1000
    assert np.shares_memory(np.frombuffer(pickled.buffers[0]), array)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (LOCK, "it cannot be sent to another process: a _thread.lock cannot be pickled"),
        ({"a": [1, (2, LOCK)]}, "a _thread.lock, in it['a'][1][1], cannot be pickled"),
        (
            [np.zeros(LARGE), {"k": iter([]).__reduce__, "g": deeds.numbers()}],
            "a generator, in it[1]['g'], cannot",
        ),
        (lambda: LOCK, "a _thread.lock, in it's 'LOCK', cannot"),
        ((lambda lock: lambda: lock)(threading.Lock()), "a _thread.lock, in it's 'lock', cannot"),
        (deeds.Locked("x"), "a _thread.lock, in it.lock, cannot"),
        (deeds.fail.__get__(LOCK), "it cannot be sent to another process: a method cannot"),
    ],
)
def test_what_cannot_be_sent_is_named_with_its_place(value: object, told: str) -> None:
    with pytest.raises(Unpicklable) as caught:
        pickling.dump(value)

    assert told in str(caught.value)


@pytest.mark.usefixtures("light")
class TestInACall:
    @pytest.mark.parametrize("size", [10, LARGE])
    def test_a_call_writes_over_its_own_copy(self, size: int) -> None:
        array = np.asfortranarray(np.ones((2, size)))

        assert run(deeds.shape_of, (array,), {}) == (True, True, 2.0 * size)
        assert array.sum() == 2.0 * size

    def test_a_value_is_made_again_once_and_only_where_it_arrives(self) -> None:
        assert run(deeds.Doubled, (), {}).numbers[0] == 2

    def test_what_an_exception_has_is_sent_as_it_was_and_not_as_a_trial_changed_it(self) -> None:
        with pytest.raises(ValueError) as caught:  # its argument is what counts
            run(deeds.fail_doubled, (), {})

        assert caught.value.args[0].numbers[0] == 2

    def test_what_two_arguments_share_they_still_do(self) -> None:
        array = np.zeros(LARGE)

        assert run(lambda one, other: one is other, (array,), {"other": array})

    @pytest.mark.parametrize(
        ("function", "told"),
        [
            (
                lambda: {"a": threading.Lock()},
                r"the result of .*<lambda> cannot be sent.*: a _thread.lock, in .*\['a'\]",
            ),
            (deeds.only_there, r"What the call returned cannot be made again here \(not again\)"),
        ],
    )
    def test_a_result_that_cannot_come_home_is_told(self, function: Callable[[], object], told: str) -> None:
        with pytest.raises(Unpicklable, match=told):
            run(function, (), {})
