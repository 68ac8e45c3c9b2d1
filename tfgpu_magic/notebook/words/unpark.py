"""`%tf_gpu unpark`: brings a parked notebook back to the GPU before its next cell does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgpu_magic.host import here
from tfgpu_magic.parking.inside import line as parking
from tfgpu_magic.policy.word import Line


def answer(line: Line) -> None:
    """Bring it back."""
    if line.rest:
        print(parking.unpark_other(line.rest))
    else:  # a cell of a parked notebook has brought it back before it runs
        print(f"This {here()} is not parked: what it holds of the GPUs is there.")


def offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return the parked notebooks' names."""
    return [] if tokens else list(parking.parked_names())
