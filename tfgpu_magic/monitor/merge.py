"""Makes one row for each process from the bytes of NVML's lists and samples, which `nvml` reads. Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tfgpu_magic.model.snapshot import Process

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROWS = {"_v3": struct.Struct("IQII"), "_v2": struct.Struct("IQII"), "": struct.Struct("IQ")}
"""One row of a list as (pid, bytes, ...), by the version of the call, the newest first (nvml.h)."""

ROW_OF_535 = struct.Struct("IQIIQ")
"""Drivers from 535.43 to before 535.86 write one more field in v3."""

SAMPLE = struct.Struct("IQIIII")
"""A sample of utilisation (nvmlProcessUtilizationSample_t): pid, microseconds since the epoch, and the percentages of
multiprocessors, memory, encoder and decoder."""

_NOT_AVAILABLE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE: Windows, WSL and some virtual GPUs
_KINDS = {"C": "C", "G": "G", "CG": "C+G", "M": "M+C", "CM": "M+C", "GM": "M+C", "CGM": "M+C"}


def known(size: int) -> int | None:
    """Return NVML's figure in bytes, or None where it is "not available"."""
    return None if size == _NOT_AVAILABLE else size


def rows(buffer: bytes, count: int, layout: struct.Struct) -> list[tuple[int, int]]:
    """Read the first `count` rows of a list as (pid, bytes)."""
    return [(fields[0], fields[1]) for fields in layout.iter_unpack(buffer[: layout.size * count])]


def merge(
    gpu: str,
    lists: Iterable[tuple[str, Sequence[tuple[int, int]]]],
    *,
    total: int | None,
    pid_max: int,
    utilisation: Mapping[int, int] | None = None,
) -> tuple[list[Process], bool]:
    """Make one row for each process from the lists of one GPU.

    A pid in two lists has its whole use in each, so the larger figure counts, never the sum.

    Args:
        gpu: the `Gpu.label`.
        lists: each list's kind (``C``, ``G`` or ``M``, in this order) and its rows of (pid, bytes).
        total: bytes of the GPU's memory, None when unknown.
        pid_max: the largest number that a pid can have.
        utilisation: the percentages of the processes that ran kernels, by pid; None where the driver does not tell.

    Returns:
        A process for each pid, and whether rows that cannot be were dropped.
    """
    merged: dict[int, tuple[str, int | None]] = {}
    dropped = False
    for kind, list_rows in lists:
        for pid, size in list_rows:
            # To be listed is to have a context, which takes memory: 0 is what some containers see for unknown.
            held = None if size in (0, _NOT_AVAILABLE) else size
            if not 0 < pid <= pid_max or (held is not None and total is not None and held > total):
                dropped = True
                continue
            if pid not in merged:
                merged[pid] = kind, held
                continue
            kinds, before = merged[pid]
            merged[pid] = kinds if kind in kinds else kinds + kind, max(held or 0, before or 0) or None
    processes = [
        Process(gpu, pid, _KINDS[kinds], held, None if utilisation is None else utilisation.get(pid, 0))
        for pid, (kinds, held) in merged.items()
    ]
    return processes, dropped


def latest(buffer: bytes, count: int) -> dict[int, tuple[int, int]]:
    """Read the first `count` samples of utilisation as the newest one's (time, percentage) by pid.

    A process that used nothing but the memory or the codecs has 1 percent, so that it counts as one that uses the GPU.
    Drivers have been seen to give samples of more than 100 percent, or of no process, which are left out.
    """
    found: dict[int, tuple[int, int]] = {}
    for pid, time, *parts in SAMPLE.iter_unpack(buffer[: SAMPLE.size * count]):
        if pid and max(parts) <= 100 and time >= found.get(pid, (0, 0))[0]:
            found[pid] = time, parts[0] or int(any(parts))
    return found
