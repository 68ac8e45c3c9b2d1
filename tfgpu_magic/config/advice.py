"""What could be asked instead of what does not fit. Pure; whoever gives the advice tries it first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tfgpu_magic.config.fit import LEAST_LIMIT, Device, Problem, context_bytes
from tfgpu_magic.config.policy import Limit, Pick, Policy, Request, Visible, amount_bytes
from tfgpu_magic.monitor.snapshot import Gpu, Snapshot
from tfgpu_magic.units import BINARY, MIB


def ways(words: Policy, found: Sequence[Problem], devices: Sequence[Device], snapshot: Snapshot) -> Iterator[Policy]:
    """Policies near to the words that may fit, the nearest first.

    Args:
        words: what was said this time.
        found: the devices that cannot have it.
        devices: all devices that TensorFlow would see.
        snapshot: all GPUs.
    """
    limits = [device.words for device, _ in found if isinstance(device.words, Limit)]
    lacking = [device.gpu for device, _ in found]
    if limits and not any(gpu.error for gpu in lacking):
        yield _swap(words, limits[0], _smaller(limits[0], devices))
    if limits:
        need = limits[0].amount
        if any(_room(gpu) >= amount_bytes(need, gpu.total or 0) for gpu in snapshot.gpus):
            yield Policy((Pick(1, need), Limit(need, grow=limits[0].grow)))
    healthy = [device.gpu for device in devices if device.gpu not in lacking]
    if healthy:
        refs = tuple(gpu.index if gpu.instance is None else str(gpu.uuid) for gpu in healthy)
        others = [r for r in words if not isinstance(r, Visible | Pick) and getattr(r, "gpu", None) in (None, *refs)]
        yield Policy((Visible(refs), *others))


def _smaller(limit: Limit, devices: Sequence[Device]) -> Limit:
    """The same limit with a size that all GPUs have which it speaks about: tenths of a GiB, or tens of MiB."""
    size = min(_room(device.gpu) for device in devices if device.words == limit)
    unit = BINARY["GiB"] // 10 if size >= BINARY["GiB"] else 10 * MIB
    steps = max(size // unit, LEAST_LIMIT // unit)
    # A tenth of a GiB is no whole number of bytes; this is what 4.6GiB reads as.
    return replace(limit, amount=steps * BINARY["GiB"] // 10 if size >= BINARY["GiB"] else steps * unit)


def _room(gpu: Gpu) -> int:
    """Bytes that a limit could have of a GPU."""
    return -1 if gpu.mig or gpu.total is None or gpu.free is None else gpu.free - context_bytes(gpu.total)


def _swap(words: Policy, old: Request, new: Request) -> Policy:
    """The words with one of them changed; or with it added, where an earlier line said the old one."""
    return Policy(tuple(new if r == old else r for r in words) if old in words.requests else (*words, new))
