"""Entries of the parker's record, made up: processes of a GPU whose memory is in host memory, or on its way."""

from __future__ import annotations

from typing import Any

from tests.sizes import GIB
from tfgpu_magic.parking.record import Entry, Held
from tfgpu_magic.parking.states import Phase

SINCE = 50.0


def entry(phase: Phase = Phase.PARKED, *, pid: int = 2, size: int = 4 * GIB, gpu: str = "GPU-0", **more: Any) -> Entry:
    """Return an entry of a process that holds, or held, memory of one GPU."""
    return Entry(pid=pid, began=1, phase=phase, since=SINCE, held=(Held(gpu, size),), name="eval.ipynb", **more)
