"""What could be asked instead of what does not fit. Pure; whoever gives the advice tries it first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from tfgpu_magic.config import visible
from tfgpu_magic.config.fit import LEAST_LIMIT, Device, Problem, context_bytes
from tfgpu_magic.config.policy import (
    Amount,
    Default,
    GpuRef,
    Growth,
    Limit,
    Pick,
    Policy,
    Request,
    Share,
    Split,
    SplitCpu,
    Visible,
    amount_bytes,
)
from tfgpu_magic.monitor.snapshot import Gpu, Snapshot
from tfgpu_magic.units import BINARY, MIB


def ways(words: Policy, found: Sequence[Problem], devices: Sequence[Device], snapshot: Snapshot) -> Iterator[Policy]:
    """Policies near to the words that may fit, the nearest first: as much on other GPUs, and then less.

    Args:
        words: what was said this time.
        found: the devices that cannot have it.
        devices: all devices that TensorFlow would see.
        snapshot: all GPUs.
    """
    lacking = [device.gpu for device, _ in found]
    asked = next((device.words for device, _ in found if isinstance(device.words, Limit | Split)), None)
    elsewhere = None if asked is None else _elsewhere(words, asked, snapshot)
    if elsewhere is not None and asked is not None and _has(asked, snapshot):
        yield elsewhere
    healthy = [device.gpu for device in devices if device.gpu not in lacking]
    fewer = [_only(words, healthy)] if healthy else []
    if any(_is_memory(r) for r in words):
        fewer = [way for way in fewer if any(_is_memory(r) for r in way)]  # what was asked is not to be all gone
    less = [] if asked is None or any(gpu.error for gpu in lacking) else list(_less(words, asked, devices, elsewhere))
    keeps_all = all(len(way.requests) > sum(not isinstance(r, Visible | Pick) for r in words) for way in fewer)
    yield from fewer + less if keeps_all else less + fewer


def _elsewhere(words: Policy, asked: Limit | Split, snapshot: Snapshot) -> Policy | None:
    """The words for the GPU with most free memory, whole if it has so much; None where they differ from GPU to GPU."""
    if any(isinstance(r, Limit | Split) and r != asked for r in words):
        return None
    pick, memory = Pick(1, _need(asked)), replace(asked, gpu=None)
    if isinstance(memory, Limit) and not _has(asked, snapshot):
        pick, memory = Pick(), replace(memory, amount=_rounded(max(map(_room, snapshot.gpus))))
    return Policy((pick, *(r for r in words if isinstance(r, SplitCpu)), memory))


def _only(words: Policy, gpus: Sequence[Gpu]) -> Policy:
    """The words for these GPUs, and no others shown."""
    refs = tuple(gpu.index if gpu.instance is None else gpu.label for gpu in gpus)
    named = {None, *refs, *(str(gpu.uuid) for gpu in gpus)}
    first = (r for r in words if isinstance(r, Default))  # it would undo what comes before it
    kept = (r for r in words if not isinstance(r, Visible | Pick | Default) and getattr(r, "gpu", None) in named)
    return Policy((*first, Visible(refs), *kept))


def _less(words: Policy, asked: Limit | Split, devices: Sequence[Device], elsewhere: Policy | None) -> Iterator[Policy]:
    """Less than is asked: the most that one GPU has, where that is more than all have, and what all of them have."""
    if isinstance(asked, Limit):
        smaller = _rounded(min(_room(device.gpu) for device in devices if device.words == asked))
        if any(device.words == asked and device.limits and device.limits[0] < LEAST_LIMIT for device in devices):
            smaller = LEAST_LIMIT  # it was too little
        most = elsewhere.requests[-1] if elsewhere is not None else None
        if elsewhere is not None and isinstance(most, Limit) and most.amount != asked.amount and most.amount != smaller:
            yield elsewhere
        yield _swap(words, asked, replace(asked, amount=smaller))
    elif not isinstance(asked.parts, int) and len(asked.parts) > 1:
        yield _swap(words, asked, replace(asked, parts=len(asked.parts)))


def without_missing(words: Policy, missing: Request, known: Sequence[Gpu]) -> Policy:
    """The words without a request for GPUs that are not there; of a list of GPUs, those stay that are."""
    if isinstance(missing, Visible):
        stay = tuple(ref for ref in missing.gpus or () if _is_there(ref, known))
        return Policy(tuple(replace(r, gpus=stay) if r == missing else r for r in words if r != missing or stay))
    return Policy(tuple(r for r in words if _is_there(getattr(r, "gpu", None), known)))


def _is_there(ref: GpuRef | None, gpus: Sequence[Gpu]) -> bool:
    """Whether there is the GPU that is meant; where none is, every GPU is."""
    return ref is None or isinstance(visible.find(ref, gpus), Gpu)


def _is_memory(request: Request) -> bool:
    return isinstance(request, Growth | Limit | Split)


def _has(asked: Limit | Split, snapshot: Snapshot) -> bool:
    """Whether any GPU has all that is asked of one."""
    need = _need(asked)
    return need is not None and any(_room(gpu) >= amount_bytes(need, gpu.total or 0) for gpu in snapshot.gpus)


def _need(asked: Limit | Split) -> Amount | None:
    """What is asked of one GPU in all; None for parts of both kinds, and for a number of them."""
    if isinstance(asked, Limit):
        return asked.amount
    parts = () if isinstance(asked.parts, int) else asked.parts
    sizes = [part for part in parts if isinstance(part, int)]
    shares = [part.percent for part in parts if isinstance(part, Share)]
    if len(shares) == len(parts) and 0 < sum(shares) <= 100:
        return Share(Decimal(sum(shares)))
    return sum(sizes) if sizes and len(sizes) == len(parts) else None


def _rounded(size: int) -> int:
    """A size that people would write, a little below: tenths of a GiB, or tens of MiB."""
    if size >= BINARY["GiB"]:
        # A tenth of a GiB is no whole number of bytes; this is what 4.6GiB reads as.
        return size * 10 // BINARY["GiB"] * BINARY["GiB"] // 10
    return max(size // (10 * MIB), LEAST_LIMIT // (10 * MIB)) * 10 * MIB


def _room(gpu: Gpu) -> int:
    """Bytes that a limit could have of a GPU."""
    return -1 if gpu.mig or gpu.total is None or gpu.free is None else gpu.free - context_bytes(gpu.total)


def _swap(words: Policy, old: Request, new: Request) -> Policy:
    """The words with one of them changed; or with it added, where an earlier line said the old one."""
    return Policy(tuple(new if r == old else r for r in words) if old in words.requests else (*words, new))
