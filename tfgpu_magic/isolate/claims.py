"""What our calls may take of GPUs, and have taken: plain data, of which `allocation` decides. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.memory import context_bytes
from tfgpu_magic.monitor.snapshot import Gpu, Process


def key(gpu: Gpu) -> str:
    """Return a GPU's identifier, which is valid for as long as the machine runs."""
    return gpu.uuid or gpu.label


def size(device: Device) -> int | None:
    """Return the bytes that a call takes of a GPU in all, CUDA's context included; None if it takes the whole GPU.

    It does without a limit, and where it is not known what is free: whether a second call fits cannot be decided then.
    """
    gpu = device.gpu
    if not device.limits or gpu.total is None or gpu.free is None:
        return None
    return sum(device.limits) + context_bytes(gpu.total)


def is_fair(device: Device) -> bool:
    """Tell whether a call that takes the whole GPU among our calls takes a fair part beside other processes."""
    return size(device) is None and device.words is not None and device.words.divided


@dataclass(frozen=True, slots=True)
class Claim:
    """What one of our calls may take of one GPU.

    Attributes:
        gpu: the GPU's identifier, as `key` returns it.
        size: bytes in all, CUDA's context included; None is the whole GPU.
        pid: the call's process; None while it has none.
        began: when that process began, in the system's ticks since its start: a pid alone may have been reused.
        known: the pids of another namespace that were on the GPU before the claim was made.
        fair: whether it has the whole GPU among our calls, and a fair part beside other processes.
    """

    gpu: str
    size: int | None
    pid: int | None = None
    began: int | None = None
    known: tuple[int, ...] = ()
    fair: bool = False

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Claim:
        """Make a claim of what `dataclasses.asdict` returned."""
        return cls(**{**fields, "known": tuple(fields["known"])})


@dataclass(frozen=True, slots=True)
class Holding:
    """What each process holds of the GPUs now.

    Attributes:
        processes: each process on each GPU.
        strangers: the pids that do not exist here, because the driver reports those of another namespace.
    """

    processes: Sequence[Process] = ()
    strangers: frozenset[int] = frozenset()

    def of(self, claims: Sequence[Claim], gpu: Gpu) -> list[int]:
        """Return how much of a GPU each of our calls there has taken of what it may.

        A call's process is found by its pid; if the driver reports pids of another namespace, it is taken to be the
        process of the nearest size that was not there when the call got the GPU.
        """
        here = [row for row in self.processes if row.gpu == gpu.label]
        strange = {row.pid: row for row in here if row.pid in self.strangers}
        found: list[list[Process]] = []
        for claim in claims:
            own = [row for row in here if row.pid == claim.pid]
            if not own and claim.pid is not None:
                new = [row for pid, row in strange.items() if pid not in claim.known]
                nearest = min(new, key=lambda row: (abs((row.held or 0) - (claim.size or 0)), row.pid), default=None)
                own = [] if nearest is None else [strange.pop(nearest.pid)]
            found.append(own)
        held = [sum(row.held or 0 for row in own) for own in found]
        if gpu.used is None or len(here) > sum(map(len, found)):
            return held
        # No other process is there: what the driver does not report of each, it reports of all together.
        unattributed = gpu.used - sum(held)
        for number, (claim, own) in enumerate(zip(claims, found, strict=True)):
            if any(row.held is None for row in own):
                held[number] = min(unattributed, claim.size or 0)
                unattributed -= held[number]
        return held
