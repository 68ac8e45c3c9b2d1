"""Which of a cell's errors count: those that it was raised from, and parts of groups; not those that were handled."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable

import pytest

from tests.sizes import GIB
from tfgpu_magic.insight.why import errors
from tfgpu_magic.isolate.values import failure

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB."


def raised(code: str) -> BaseException:
    """Return what some code raises."""
    try:
        exec(code, {"full": lambda: RuntimeError(OOM)})
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def sent(code: str) -> BaseException:
    """Return the same as it comes from another process."""
    described, pickled = failure.capture(raised(code))
    return failure.revive(pickle.loads(pickle.dumps(described)), pickled.parts)


DIRECT = "raise full()"
FROM = "try:\n    raise full()\nexcept RuntimeError as error:\n    raise ValueError('training failed') from error"
HANDLED = "try:\n    raise full()\nexcept RuntimeError:\n    {}['missing']"
INSTEAD = "try:\n    raise full()\nexcept RuntimeError:\n    raise ValueError('too large') from None"


@pytest.mark.parametrize("how", [raised, sent])
@pytest.mark.parametrize(("code", "counts"), [(DIRECT, True), (FROM, True), (HANDLED, False), (INSTEAD, False)])
def test_an_error_counts_by_what_it_was_raised_from(
    how: Callable[[str], BaseException], code: str, counts: bool
) -> None:
    found = errors.shortage(how(code))

    assert (found is not None and found.size == 2 * GIB) == counts


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no groups")
def test_a_part_of_a_group_counts() -> None:
    group = raised("raise ExceptionGroup('two', [ValueError('1'), ExceptionGroup('one', [full()])])")
    other = raised("raise ExceptionGroup('one', [ValueError('1')])")

    assert errors.shortage(group) is not None
    assert errors.shortage(other) is None


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one

    assert errors.shortage(one) is None


def test_errors_of_calls_are_told_from_those_of_this_process() -> None:
    assert errors.from_call(sent(DIRECT))
    assert not errors.from_call(raised(FROM))


def test_an_array_that_was_to_be_copied_tells_what_was_asked_for() -> None:
    class Array:
        nbytes, shape, dtype = 3 * GIB, (3, 2**28), "float32"

    def convert_to_eager_tensor(value: object) -> None:
        assert value
        raise RuntimeError("Dst tensor is not initialized.")

    with pytest.raises(RuntimeError) as caught:
        convert_to_eager_tensor(Array())
    found = errors.shortage(caught.value)

    assert found is not None
    assert (found.size, found.shape, found.dtype) == (3 * GIB, (3, 2**28), "float32")
