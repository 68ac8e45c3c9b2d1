"""Which of a cell's errors count: those that it was raised from, and parts of groups; not those that were handled."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.sizes import GIB
from tfgpu_magic.insight.why import errors
from tfgpu_magic.isolate.values import failure
from tfgpu_magic.isolate.values.failure import ChildTraceback

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
    return failure.load(failure.dump(raised(code)))


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
    passed_on = RuntimeError(OOM)
    passed_on.__cause__ = type("RemoteTraceback", (Exception,), {})()  # as `multiprocessing` and executors have it

    assert errors.is_of_call(sent(DIRECT))
    assert errors.is_of_call(passed_on)
    assert not errors.is_of_call(raised(FROM))


class Array:
    nbytes, shape, dtype = 3 * GIB, (3, 2**28), "float32"


class MuteArray:
    """An array whose own code fails."""

    @property
    def nbytes(self) -> int:
        raise RuntimeError("no size")


@pytest.mark.parametrize(
    ("array", "told"), [(Array(), (3 * GIB, (3, 2**28), "float32")), (MuteArray(), (None, None, ""))]
)
def test_an_array_that_was_to_be_copied_tells_what_was_asked_for(array: object, told: tuple[object, ...]) -> None:
    def convert_to_eager_tensor(value: object) -> None:
        assert value is not None
        raise RuntimeError("Dst tensor is not initialized.")

    with pytest.raises(RuntimeError) as caught:
        convert_to_eager_tensor(array)
    found = errors.shortage(caught.value)

    assert found is not None
    assert (found.size, found.shape, found.dtype) == told


class Hostile(Exception):
    """An error whose own code fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    @property
    def exceptions(self) -> tuple[BaseException, ...]:
        raise RuntimeError("no parts")


def test_an_error_whose_own_code_fails_is_none_and_hides_no_other() -> None:
    error, part = Hostile(), RuntimeError("a part")
    part.exceptions = (Hostile(), RuntimeError(OOM))  # type: ignore[attr-defined]

    assert errors.shortage(error) is None
    assert errors.shortage(part) is not None


TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in train
    raise {code}
{said}
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 3, in train
  |     raise {code}
  | ExceptionGroup: two (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "train.py", line 4, in train
    |     raise {code}
    | {said}
    +------------------------------------
"""


@pytest.mark.parametrize("text", [TRACEBACK, GROUP])
@pytest.mark.parametrize(
    ("code", "said", "counts"), [(f"full  # {OOM}", "ValueError: no", False), ("full", f"RuntimeError: {OOM}", True)]
)
def test_a_program_of_another_process_that_speaks_of_memory_is_no_error_of_it(
    text: str, code: str, said: str, counts: bool
) -> None:
    error = ValueError("no")
    error.__cause__ = ChildTraceback(text.format(code=code, said=said))

    assert (errors.shortage(error) is not None) == counts
