"""What calls of ours may take of GPUs, what they wait for, and what they have taken, as data. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.memory import context_bytes
from tfgpu_magic.monitor.snapshot import Gpu, Process


def key(gpu: Gpu) -> str:
    """What names a GPU for as long as the machine runs."""
    return gpu.uuid or gpu.label


def size(device: Device) -> int | None:
    """Bytes that a call takes of a GPU in all, CUDA's context included; None where that is the whole of it.

    So it is without a limit, and where nobody knows what is free: a second call cannot be told to fit there.
    """
    gpu = device.gpu
    if not device.limits or gpu.total is None or gpu.free is None:
        return None
    return sum(device.limits) + context_bytes(gpu.total)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a call of ours may take of one GPU.

    Attributes:
        gpu: the GPU, as `key` names it.
        size: bytes in all, CUDA's context included; None is the whole GPU.
        pid: the call's process; None while it has none.
        began: when that began, in the system's ticks since its start: a pid alone may be another's by now.
        since: the number that was given when it was made; see `Need.ticket`.
        known: the pids of another namespace that were on the GPU before it was made.
    """

    gpu: str
    size: int | None
    pid: int | None = None
    began: int | None = None
    since: int = 0
    known: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Claim:
        """Make it of what `dataclasses.asdict` gave."""
        return cls(**{**fields, "known": tuple(fields["known"])})


@dataclass(frozen=True, slots=True)
class Need:
    """What a call waits for.

    Attributes:
        ticket: its number; claims that were made since it came have larger ones.
        count: how many GPUs.
        sizes: what it would take of each that it may have, as in `Claim`.
    """

    ticket: int
    count: int
    sizes: tuple[tuple[str, int | None], ...]

    @classmethod
    def of(cls, ticket: int, devices: Sequence[Device], count: int) -> Need:
        """What is needed where so many of these GPUs are."""
        return cls(ticket, count, tuple((key(device.gpu), size(device)) for device in devices))

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Need:
        """Make it of what `dataclasses.asdict` gave."""
        return cls(fields["ticket"], fields["count"], tuple((gpu, size) for gpu, size in fields["sizes"]))

    def devices(self, gpus: Mapping[str, Gpu]) -> list[Device]:
        """The GPUs that it may have, as they are now."""
        there = [(gpus[name], bytes_) for name, bytes_ in self.sizes if name in gpus]
        return [
            Device(gpu=gpu, limits=() if bytes_ is None else (max(0, bytes_ - context_bytes(gpu.total or 0)),))
            for gpu, bytes_ in there
        ]


@dataclass(frozen=True, slots=True)
class Holding:
    """Who holds what now.

    Attributes:
        processes: each process on each GPU.
        strangers: the pids that are none of this machine's, because the driver names those of another namespace.
    """

    processes: Sequence[Process] = ()
    strangers: frozenset[int] = frozenset()

    def of(self, claims: Sequence[Claim], gpu: Gpu) -> list[int]:
        """How much of a GPU each of our calls there has taken of what it may.

        By its pid; where the driver names pids of another namespace, by a process of the fitting size that was not
        there when the call got the GPU.
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
        # Nobody else is there: what the driver does not tell of each, it tells of all together.
        untold = gpu.used - sum(held)
        for number, (claim, own) in enumerate(zip(claims, found, strict=True)):
            if any(row.held is None for row in own):
                held[number] = min(untold, claim.size or 0)
                untold -= held[number]
        return held
