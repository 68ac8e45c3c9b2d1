"""What shares memory counts once, and what is in use beyond the arrays is known as a rest."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from tests.sizes import MIB
from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.insight.objects import roots, search
from tfgpu_magic.insight.objects.accounts import Buffer, accounts, merge_overlapping, size_rests

ON = ("TensorFlow", "GPU:0")


def array(
    size: int,
    address: int | None = None,
    *,
    framework: str = "TensorFlow",
    device: str = "GPU:0",
    what: str = "tensor",
    dtype: str = "float32",
    rest: bool = False,
) -> tuple[str, Array]:
    """Return an array with its framework's name; its shape is that of its size in floats."""
    return framework, Array(None, what, dtype, (size // 4,), size, device, address, rest=rest)


def shapes(found: Iterable[Buffer]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the size of each memory, and the arrays that have it."""
    return sorted((one.size, one.arrays) for one in found)


@pytest.mark.parametrize(
    ("arrays", "found"),
    [
        (  # at places of their own
            [array(MIB, 0), array(MIB, MIB), array(MIB), array(MIB)],
            [(MIB, (place,)) for place in range(4)],
        ),
        ([array(1024, 0), array(MIB, 0)], [(MIB, (1, 0))]),  # a view joins its array
        ([array(1024, 4096), array(MIB, 0)], [(MIB, (1, 0))]),
        ([array(MIB, 0), array(MIB, 0)], [(MIB, (0, 1))]),  # of two that are the same the first comes first
        ([array(6 * MIB, 0), array(6 * MIB, 4 * MIB)], [(10 * MIB, (0, 1))]),  # parts that overlap
        # A view whose size is rounded up does not reach the next array.
        ([array(1024, 0), array(1024, 4), array(1024, 1024)], [(1024, (0, 1)), (1024, (2,))]),
        ([array(MIB, 0), array(MIB, 0, device="GPU:1")], [(MIB, (0,)), (MIB, (1,))]),
    ],
)
def test_what_shares_memory_counts_once(
    arrays: list[tuple[str, Array]], found: list[tuple[int, tuple[int, ...]]]
) -> None:
    assert shapes(merge_overlapping(arrays)) == found


def test_a_name_has_alone_what_no_other_name_leads_to(monkeypatch: pytest.MonkeyPatch) -> None:
    own, common = SimpleNamespace(), SimpleNamespace()
    arrays = [(ON[0], array(size)[1]._replace(thing=thing)) for size, thing in ((MIB, own), (2 * MIB, common))]
    monkeypatch.setattr(search, "_arrays", lambda: arrays)
    monkeypatch.setattr(roots, "notebook_names", lambda: {"model": [own, common], "batch": common})

    assert (search.bytes_held_alone("model", ON), search.bytes_held_alone("batch", ON)) == (MIB, 0)


def test_iterators_without_a_bound_share_what_is_left_by_all_others() -> None:
    endless = array(0, what="dataset iterator", rest=True)
    arrays = [endless, array(MIB, 0), endless, array(2 * MIB, what="dataset iterator", rest=True)]

    found = size_rests(merge_overlapping(arrays), arrays, {ON: 9 * MIB})
    assert shapes(found) == [(MIB, (1,)), (2 * MIB, (3,)), (6 * MIB, (0, 2))]


def test_the_rest_is_what_is_in_use_beyond_the_arrays() -> None:
    arrays = [array(MIB, 0), array(MIB, 0, framework="JAX", device="cuda:0")]
    in_use = {ON: 3 * MIB, ("TensorFlow", "GPU:1"): MIB, ("TensorFlow", "GPU:2"): 0}
    first, second, third = accounts(size_rests(merge_overlapping(arrays), arrays, in_use), in_use)

    assert (first.framework, first.in_use, first.unaccounted) == ("JAX", None, None)
    assert (second.device, second.found, second.unaccounted) == ("GPU:0", MIB, 2 * MIB)
    assert (third.device, third.found, third.unaccounted) == ("GPU:1", 0, MIB)
