"""Parks this process, for a line of its own or for another process of its user's, and says what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tfgpu_magic import host
from tfgpu_magic.parking.frameworks import Staying
from tfgpu_magic.parking.inside.process import GatedProcess
from tfgpu_magic.parking.mechanism import FrameworkMechanism, described
from tfgpu_magic.parking.outcome import BUSY, UNLOADED, ParkOutcome
from tfgpu_magic.parking.reported import ReportedMechanism
from tfgpu_magic.units import rounded


@cache
def of(shell: Any) -> tuple[GatedProcess, FrameworkMechanism]:
    """Return the gate of this process, and what moves its arrays."""
    mechanism = FrameworkMechanism()
    return GatedProcess(shell, ReportedMechanism(mechanism)), mechanism


def park(shell: Any, show: Callable[[str], object] = lambda _: None) -> ParkOutcome:
    """Park this process, in which no cell runs, and return what became of it; `show` takes how it gets on."""
    process, mechanism = of(shell)
    begun = time.monotonic()
    against = process.park(show)
    if against:
        return ParkOutcome(False, against)
    seconds = time.monotonic() - begun
    first = f"Parked in {seconds:.1f} s: {rounded(mechanism.parked)} in host memory; {staying(mechanism.stays)}."
    return ParkOutcome(True, [first, *described(mechanism.stays)])


def asked(before: float) -> ParkOutcome:
    """Park this process for another one, which has asked its kernel (`ask_kernel`).

    Args:
        before: when the question is too old, in seconds since the epoch.
    """
    shell = host.shell()
    if host.magics(shell) is None:
        return ParkOutcome(False, [UNLOADED])
    return ParkOutcome(False, [BUSY]) if time.time() > before else park(shell)


def staying(stays: Sequence[Staying]) -> str:
    """Say how much stays on the GPU."""
    size = sum(one.size or 0 for one in stays)
    return f"{rounded(size)} and CUDA's context stay on the GPU" if size else "CUDA's context stays on the GPU"
