"""Which GPUs an isolated call may have beside the other calls of this process, and with what policy. Pure.

Without a limit in its policy a call has a GPU to itself among our calls; with one it shares the GPU with others, as
far as there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfgpu_magic.config import fit
from tfgpu_magic.config.fit import Device, context_bytes
from tfgpu_magic.config.policy import GpuRef, Growth, Limit, Memory, Policy, Share, Split, SplitCpu, Visible
from tfgpu_magic.errors import Refused
from tfgpu_magic.monitor.snapshot import Gpu, Process
from tfgpu_magic.units import MIB


@dataclass(frozen=True, slots=True)
class Claim:
    """What a call of ours may take of one GPU.

    Attributes:
        gpu: the GPU, as `key` names it.
        size: bytes in all, CUDA's context included; None is the whole GPU.
        pid: the call's process; None while it has none.
    """

    gpu: str
    size: int | None
    pid: int | None = None


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


def choose(
    devices: Sequence[Device],
    processes: Sequence[Process],
    claims: Sequence[Claim],
    count: int,
    names: Callable[[], Mapping[int, str]] = dict,
) -> tuple[Device, ...] | None:
    """Choose a call's GPUs: of those that have room the ones with most memory left.

    Args:
        devices: the GPUs that it may have, as they are now, and what it would take of each.
        processes: who holds what on them now.
        claims: what other calls of ours may take.
        count: how many it needs.
        names: tells who is behind each pid; asked only to say who is in the way.

    Returns:
        The GPUs, or None where only our own calls are in the way, and it has to wait for one to end.

    Raises:
        Refused: there are too few GPUs, or others hold what it needs.
    """
    if len(devices) < count:
        there = f"there {'is' if len(devices) == 1 else 'are'} {len(devices) or 'none'}"
        raise Refused(f"Not started. {gpus(count)} for each call cannot be had: {there} here.")
    left = [_left(device, processes, claims) for device in devices]
    fitting = [number for number, device in enumerate(left) if device is not None and not fit.problems([device])]
    if len(fitting) >= count:
        best = sorted(fitting, key=lambda number: -((left[number] or devices[number]).gpu.free or 0))
        return tuple(devices[number] for number in best[:count])
    found = fit.problems([_at_best(device, claims) for device in devices])
    if len(devices) - len(found) >= count:
        return None
    have = f"{len(devices) - len(found) or 'none'} ha{'s' if len(devices) - len(found) == 1 else 've'} room"
    lines = [f"Not started. The call needs {gpus(count)}, and {have} for it.", fit.tell(found, processes, names())]
    if any(isinstance(device.words, Limit) and isinstance(device.words.amount, Share) for device in devices):
        lines.append("Of an isolated call, a percentage is all that its process holds, CUDA's context included.")
    raise Refused("\n".join(lines))


def places(devices: Sequence[Device], claims: Sequence[Claim], count: int) -> int:
    """How many calls of `count` GPUs each have room at once when no other call of ours runs; at least 1."""
    fitting = [device for device in (_at_best(device, claims) for device in devices) if not fit.problems([device])]
    room = 0
    for device in fitting:
        needed = size(device)
        room += 1 if needed is None else (device.gpu.free or 0) // needed
    return max(1, room // count)


def _left(device: Device, processes: Sequence[Process], claims: Sequence[Claim]) -> Device | None:
    """The GPU without what calls of ours may still take of it; None where it cannot be shared with them."""
    gpu, ours = device.gpu, [claim for claim in claims if claim.gpu == key(device.gpu)]
    if not ours:
        return device
    if size(device) is None or gpu.free is None:
        return None
    free = gpu.free
    for claim in ours:
        if claim.size is None:
            return None
        held = sum(row.held or 0 for row in processes if row.pid == claim.pid and row.gpu == gpu.label)
        free -= max(0, claim.size - held)
    return replace(device, gpu=replace(gpu, free=max(0, free)))


def _at_best(device: Device, claims: Sequence[Claim]) -> Device:
    """The GPU as it may be when our calls there have ended: how much of it others hold is seen then."""
    if device.gpu.free is None or all(claim.gpu != key(device.gpu) for claim in claims):
        return device
    return replace(device, gpu=replace(device.gpu, free=_usable(device.gpu)))


def _usable(gpu: Gpu) -> int | None:
    """Bytes that processes can share: what driver and firmware keep is never theirs."""
    return None if gpu.total is None else gpu.total - (gpu.reserved or 0)


def gpus(count: int) -> str:
    """So many GPUs, in words."""
    return f"{count} GPU{'s' * (count != 1)}"


def asked(device: Device) -> Device:
    """What an isolated call takes of a GPU, where its words ask for what is in `device`.

    A limit in percent is a share of what processes can have of the GPU, and counts all that the call's process
    holds, CUDA's context too: four calls at 25% fit on one GPU. One that is split into equal parts is taken whole.
    """
    match device.words:
        case Split(parts=int()):
            return replace(device, limits=())
        case Limit(amount=Share() as share):
            total = device.gpu.total or 0  # it is known, or the words were refused
            limit = share.of(_usable(device.gpu) or 0) - context_bytes(total)
            return replace(device, limits=(max(0, limit) // MIB * MIB,))
    return device


def settle(policy: Policy, devices: Sequence[Device]) -> Policy:
    """The policy for a process that has these GPUs: they are named, and what it takes of each is in bytes."""
    references = [device.gpu.index if device.gpu.instance is None else key(device.gpu) for device in devices]
    memory = [
        words
        for reference, device in zip(references, devices, strict=True)
        if (words := _settled(device, None if len(devices) == 1 else reference)) is not None
    ]
    rest = [request for request in policy if isinstance(request, SplitCpu)]
    return Policy((*rest, Visible(tuple(references)), *dict.fromkeys(memory)))


def _settled(device: Device, reference: GpuRef | None) -> Memory | None:
    match device.words:
        case Limit(grow=grow):
            return Limit(device.limits[0], reference, grow)
        case Split(parts=int(count), grow=grow):
            return Split(count, reference, grow)
        case Split(grow=grow):
            return Split(device.limits, reference, grow)
        case Growth() as growth:
            return growth
    return None
