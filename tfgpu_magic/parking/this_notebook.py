"""Parks this notebook, for a line of its own or for another process of its user's, and says what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.parking.arrays import MovedArrays, stay_messages
from tfgpu_magic.parking.frameworks import Staying
from tfgpu_magic.parking.kernel.process import GatedProcess
from tfgpu_magic.parking.outcome import BUSY, UNLOADED, ParkOutcome


@cache
def this_process(shell: Any) -> tuple[GatedProcess, MovedArrays]:
    """Return the gate of this process, and its arrays."""
    arrays = MovedArrays()
    return GatedProcess(shell, arrays), arrays


def park(shell: Any, show: Callable[[Message | None], object] = bool) -> ParkOutcome:
    """Park this process, in which no cell runs; `show` takes messages on the progress, if there is any."""
    process, arrays = this_process(shell)
    begun = time.monotonic()
    if reasons := process.park(show):
        return ParkOutcome(False, reasons)
    first = msg(
        "Parked in {seconds} s: {size} in host memory; {stays}.",
        seconds=f"{time.monotonic() - begun:.1f}",
        size=rounded(arrays.size),
        stays=how_much_stays(arrays.stays),
    )
    return ParkOutcome(True, [first, *stay_messages(arrays.stays)])


def park_for_another(before: float) -> ParkOutcome:
    """Park this process for the one that has asked its kernel (`other_notebooks`).

    Args:
        before: when the question is too old, in seconds since the epoch.
    """
    shell = process_kind.shell()
    if process_kind.magics(shell) is None:
        return ParkOutcome(False, [UNLOADED])
    return ParkOutcome(False, [BUSY]) if time.time() > before else park(shell)


def how_much_stays(stays: Sequence[Staying]) -> Message:
    """Return how much stays on the GPU."""
    size = sum(one.size or 0 for one in stays)
    context = msg("CUDA's context stays on the GPU")
    return msg("{size} and CUDA's context stay on the GPU", size=rounded(size)) if size else context
