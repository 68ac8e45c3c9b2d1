"""Policies that are easier to have than the one that was asked: for people to choose from, and where nobody is. Pure.

What people are offered keeps as much of what they asked as there is room for now: `similar`. What holds for nobody, as
a configured policy, is to be safe first, and may cost less than was asked: `easier`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from tfgpu_magic.errors import Refused
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.ground.units import BINARY, MIB
from tfgpu_magic.policy.fit import Device, Problem
from tfgpu_magic.policy.memory import LEAST_LIMIT, amount_bytes, context_bytes
from tfgpu_magic.policy.policy import Choice, Memory, Policy, Request, Reset, find, reference
from tfgpu_magic.policy.process_state import DEVICES, ProcessState
from tfgpu_magic.policy.promises import available
from tfgpu_magic.policy.requests.growth import Growth
from tfgpu_magic.policy.requests.pick import Pick
from tfgpu_magic.policy.requests.visible import Visible
from tfgpu_magic.policy.resolver import is_skipped, seen_without_words

LEAST_PART = 16
"""Of how many parts of what was asked an offer must have one: less is another program."""


def easier(policy: Policy, snapshot: Snapshot, process: ProcessState) -> Iterator[Policy]:
    """Yield the policy, and then others, each further from it and easier to enforce than the one before."""
    yield policy
    asked, wanted, cpus = policy.memory, policy.choice, policy.cpus
    if not snapshot.gpus:
        if snapshot.absent and cpus:
            yield Policy((Growth(), *cpus))
        return
    for choice, there in _choices(wanted, snapshot, process):
        for memory in easier_memory(asked, there, process):
            yield Policy((*choice, *memory, *cpus))


def easier_memory(asked: Sequence[Memory], there: Sequence[Gpu], process: ProcessState) -> Iterator[Sequence[Memory]]:
    """Yield what is asked of these GPUs under the ceiling, then the same as caps, and then growth."""
    policy = Policy(tuple(asked)).among(lambda ref: find(ref, there) in there)
    if process.ceiling is not None:
        with contextlib.suppress(Refused):  # how much a GPU has is unknown, and growth is left
            policy = process.ceiling.clamp(policy, there)
    kept = policy.memory
    if kept or not asked:
        yield kept
        yield [request.growing(on=True) if request.limited else request for request in kept]
    yield [Growth()]


def _choices(
    wanted: Choice | None, snapshot: Snapshot, process: ProcessState
) -> Iterator[tuple[Sequence[Choice], Sequence[Gpu]]]:
    """Yield choices without the GPUs that are lost or full, each with the GPUs that may be seen then."""
    unknown = process.shown is None and DEVICES in process.outside  # it may be any GPU, as a scheduler has chosen
    if wanted is None and unknown:
        yield (), snapshot.gpus
        return
    seen = _seen(wanted, snapshot, process)
    fine = [gpu for gpu in seen if _is_fine(gpu, seen, process)]
    if wanted is None and len(fine) == len(seen):
        yield (), fine
    refs = list(map(reference, fine))
    for choice in (wanted or Visible(())).easier(refs):
        yield [choice], fine


def _seen(choice: Choice | None, snapshot: Snapshot, process: ProcessState) -> Sequence[Gpu]:
    """Return the GPUs that a choice is about."""
    if choice is not None and choice.everything:
        return [gpu for gpu in snapshot.gpus if gpu.instance is None]
    if choice is not None and not choice.picks:
        return [gpu for ref in choice.refs if isinstance(gpu := find(ref, snapshot.gpus), Gpu)]
    return seen_without_words(snapshot, process)


def _is_fine(gpu: Gpu, seen: Sequence[Gpu], process: ProcessState) -> bool:
    """Return whether TensorFlow's first op is possible there, as far as is known."""
    full = gpu.free is not None and gpu.free < context_bytes(gpu.total or 0)
    return not (gpu.lost or gpu.mig or full or is_skipped(gpu, seen, process))


def similar(
    words: Policy, found: Sequence[Problem], devices: Sequence[Device], snapshot: Snapshot, process: ProcessState
) -> Iterator[Policy]:
    """Yield similar policies that may fit, the nearest first: as much on other GPUs, then less; `decide` tries each.

    Args:
        words: the policy that was asked for now.
        found: the problems of the devices that lack it.
        devices: all devices that TensorFlow would see.
        snapshot: all GPUs.
        process: this process now.
    """
    room = {gpu.label: available(process.promises, gpu) for gpu in snapshot.gpus}
    lacking = [device.gpu for device, _ in found]
    asked = next((device.words for device, _ in found if device.words is not None and device.words.limited), None)
    if asked is not None and _has(asked, snapshot, room):
        yield from _on_the_freest(words, asked, asked)
    healthy = [device.gpu for device in devices if device.gpu not in lacking]
    fewer = [_only(words, healthy)] if healthy else []
    if words.memory:
        fewer = [way for way in fewer if way.memory]  # some request about memory is to be left
    less = (
        [] if asked is None or any(gpu.error for gpu in lacking) else list(_less(words, asked, devices, snapshot, room))
    )
    keeps_all = all(len(way.requests) > sum(not isinstance(r, Choice) for r in words) for way in fewer)
    yield from fewer + less if keeps_all else less + fewer


def _on_the_freest(words: Policy, asked: Memory, instead: Memory) -> Iterator[Policy]:
    """Yield the policy for the GPU with most free memory, with another request about memory; not where GPUs differ."""
    if not any(request.limited and request != asked for request in words.memory):
        yield Policy((Pick(), *words.cpus, instead.on_gpu(None)))


def _only(words: Policy, gpus: Sequence[Gpu]) -> Policy:
    """Return the policy for these GPUs, with all others hidden."""
    refs = tuple(gpu.index if gpu.instance is None else gpu.label for gpu in gpus)
    named = {*refs, *(str(gpu.uuid) for gpu in gpus)}
    first = (request for request in words if isinstance(request, Reset))  # it would undo what comes before it
    kept = (request for request in words.among(named.__contains__) if not isinstance(request, Choice | Reset))
    return Policy((*first, Visible(refs), *kept))


def _less(
    words: Policy, asked: Memory, devices: Sequence[Device], snapshot: Snapshot, room: Mapping[str, int]
) -> Iterator[Policy]:
    """Yield the policy with less: the most that one GPU has, if that is more than all have, and what all have."""
    concerned = [device for device in devices if device.words == asked]
    too_little = any(device.limits and min(device.limits) < LEAST_LIMIT for device in concerned)
    least = max(sum(device.limits) for device in concerned) // LEAST_PART
    size = LEAST_LIMIT if too_little else _rounded(min(room[device.gpu.label] for device in concerned))
    largest = _rounded(max(room.values()))
    less, most = asked.less(size), asked.less(largest)
    if most is not None and most not in (asked, less) and largest >= least and not _has(asked, snapshot, room):
        yield from _on_the_freest(words, asked, most)
    if less is not None and size >= least:
        yield _swap(words, asked, less)


def _has(asked: Memory, snapshot: Snapshot, room: Mapping[str, int]) -> bool:
    """Return whether any GPU has all that is asked of one."""
    need = asked.need
    return need is not None and any(room[gpu.label] >= amount_bytes(need, gpu.capacity or 0) for gpu in snapshot.gpus)


def _rounded(size: int) -> int:
    """Round a size down to one that people would write: tenths of a GiB, or tens of MiB."""
    if size >= BINARY["GiB"]:
        # A tenth of a GiB is no whole number of bytes; the result is what 4.6GiB is parsed as.
        return size * 10 // BINARY["GiB"] * BINARY["GiB"] // 10
    return max(size // (10 * MIB), LEAST_LIMIT // (10 * MIB)) * 10 * MIB


def _swap(words: Policy, old: Request, new: Request) -> Policy:
    """Return the policy with a request replaced; or with the new one added, where the old one is an earlier line's."""
    return Policy(tuple(new if r == old else r for r in words) if old in words.requests else (*words, new))
