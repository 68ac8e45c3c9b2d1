"""Parks this notebook, for a line of its own or for another process of its user's, and says what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tfgpu_magic.ground import host
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.parking.arrays import MovedArrays, described
from tfgpu_magic.parking.frameworks import Staying
from tfgpu_magic.parking.kernel.process import GatedProcess
from tfgpu_magic.parking.outcome import BUSY, UNLOADED, ParkOutcome


@cache
def this_process(shell: Any) -> tuple[GatedProcess, MovedArrays]:
    """Return the gate of this process, and its arrays."""
    arrays = MovedArrays()
    return GatedProcess(shell, arrays), arrays


def park(shell: Any, show: Callable[[str], object] = lambda _: None) -> ParkOutcome:
    """Park this process, in which no cell runs; `show` takes sentences on the progress."""
    process, arrays = this_process(shell)
    begun = time.monotonic()
    if against := process.park(show):
        return ParkOutcome(False, against)
    seconds = time.monotonic() - begun
    first = f"Parked in {seconds:.1f} s: {rounded(arrays.size)} in host memory; {staying(arrays.stays)}."
    return ParkOutcome(True, [first, *described(arrays.stays)])


def park_for_another(before: float) -> ParkOutcome:
    """Park this process for the one that has asked its kernel (`other_notebooks`).

    Args:
        before: when the question is too old, in seconds since the epoch.
    """
    shell = host.shell()
    if host.magics(shell) is None:
        return ParkOutcome(False, [UNLOADED])
    return ParkOutcome(False, [BUSY]) if time.time() > before else park(shell)


def staying(stays: Sequence[Staying]) -> str:
    """Return how much stays on the GPU, in words."""
    size = sum(one.size or 0 for one in stays)
    return f"{rounded(size)} and CUDA's context stay on the GPU" if size else "CUDA's context stays on the GPU"
