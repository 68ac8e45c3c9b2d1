"""Policies to ask for instead of one that does not fit. Pure; `plan` checks each before it suggests it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfgpu_magic.config.amount import amount_bytes
from tfgpu_magic.config.fit import Device, Problem
from tfgpu_magic.config.memory import LEAST_LIMIT, context_bytes
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.request import Choice, Memory, Request, Reset
from tfgpu_magic.config.requests.pick import Pick
from tfgpu_magic.config.requests.visible import Visible
from tfgpu_magic.monitor.snapshot import Gpu, Snapshot
from tfgpu_magic.units import BINARY, MIB


def ways(words: Policy, found: Sequence[Problem], devices: Sequence[Device], snapshot: Snapshot) -> Iterator[Policy]:
    """Give similar policies that may fit, the nearest first: as much on other GPUs, and then less.

    Args:
        words: the policy that was asked for now.
        found: the problems of the devices that lack it.
        devices: all devices that TensorFlow would see.
        snapshot: all GPUs.
    """
    lacking = [device.gpu for device, _ in found]
    asked = next((device.words for device, _ in found if device.words is not None and device.words.limited), None)
    if asked is not None and _has(asked, snapshot):
        yield from _on_the_freest(words, asked, asked, Pick(1, asked.need))
    healthy = [device.gpu for device in devices if device.gpu not in lacking]
    fewer = [_only(words, healthy)] if healthy else []
    if words.memory:
        fewer = [way for way in fewer if way.memory]  # some request about memory is to be left
    less = [] if asked is None or any(gpu.error for gpu in lacking) else list(_less(words, asked, devices, snapshot))
    keeps_all = all(len(way.requests) > sum(not isinstance(r, Choice) for r in words) for way in fewer)
    yield from fewer + less if keeps_all else less + fewer


def _on_the_freest(words: Policy, asked: Memory, instead: Memory, pick: Pick) -> Iterator[Policy]:
    """Give the policy for the GPU with most free memory, with another request about memory; not where GPUs differ."""
    memory, _, cpus = words.by_nature()
    if not any(request.limited and request != asked for request in memory):
        yield Policy((pick, *cpus, instead.on_gpu(None)))


def _only(words: Policy, gpus: Sequence[Gpu]) -> Policy:
    """Return the policy for these GPUs, with all others hidden."""
    refs = tuple(gpu.index if gpu.instance is None else gpu.label for gpu in gpus)
    named = {*refs, *(str(gpu.uuid) for gpu in gpus)}
    first = (request for request in words if isinstance(request, Reset))  # it would undo what comes before it
    kept = (request for request in words.among(named.__contains__) if not isinstance(request, Choice | Reset))
    return Policy((*first, Visible(refs), *kept))


def _less(words: Policy, asked: Memory, devices: Sequence[Device], snapshot: Snapshot) -> Iterator[Policy]:
    """Give the policy with less: the most that one GPU has, if that is more than all have, and what all have."""
    concerned = [device for device in devices if device.words == asked]
    too_little = any(device.limits and min(device.limits) < LEAST_LIMIT for device in concerned)
    size = LEAST_LIMIT if too_little else _rounded(min(_room(device.gpu) for device in concerned))
    less, most = asked.less(size), asked.less(_rounded(max(map(_room, snapshot.gpus))))
    if most is not None and most not in (asked, less) and not _has(asked, snapshot):
        yield from _on_the_freest(words, asked, most, Pick())
    if less is not None:
        yield _swap(words, asked, less)


def _has(asked: Memory, snapshot: Snapshot) -> bool:
    """Tell whether any GPU has all that is asked of one."""
    need = asked.need
    return need is not None and any(_room(gpu) >= amount_bytes(need, gpu.total or 0) for gpu in snapshot.gpus)


def _rounded(size: int) -> int:
    """Round a size down to one that people would write: tenths of a GiB, or tens of MiB."""
    if size >= BINARY["GiB"]:
        # A tenth of a GiB is no whole number of bytes; the result is what 4.6GiB is parsed as.
        return size * 10 // BINARY["GiB"] * BINARY["GiB"] // 10
    return max(size // (10 * MIB), LEAST_LIMIT // (10 * MIB)) * 10 * MIB


def _room(gpu: Gpu) -> int:
    """Return the bytes that a limit could have of a GPU."""
    return -1 if gpu.mig or gpu.total is None or gpu.free is None else gpu.free - context_bytes(gpu.total)


def _swap(words: Policy, old: Request, new: Request) -> Policy:
    """Return the policy with a request replaced; or with the new one added, where the old one is an earlier line's."""
    return Policy(tuple(new if r == old else r for r in words) if old in words.requests else (*words, new))
