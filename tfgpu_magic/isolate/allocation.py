"""Decides which GPUs an isolated call gets beside this user's other calls, and with what policy. Pure.

Without a limit in its policy a call has a GPU to itself among our calls; with one it shares the GPU with others, as
far as there is room. Our calls are those of every process of this user; `lease_file` holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tfgpu_magic.config import fit
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.memory import context_bytes, whole
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.request import reference
from tfgpu_magic.config.requests.visible import Visible
from tfgpu_magic.errors import NOT_STARTED, Refused
from tfgpu_magic.isolate.claims import Claim, Holding, key, size
from tfgpu_magic.monitor.snapshot import Gpu


def choose(
    devices: Sequence[Device],
    holding: Holding,
    claims: Sequence[Claim],
    count: int,
    names: Callable[[], Mapping[int, str]] = dict,
) -> tuple[Device, ...] | None:
    """Choose a call's GPUs: of those that have room, the ones with most memory left.

    Args:
        devices: the GPUs that it may have, as they are now, and what it would take of each.
        holding: what each process holds on them now.
        claims: what our other calls may take.
        count: how many it needs.
        names: returns the program behind each pid; called only for the text of a refusal.

    Returns:
        The GPUs, or None if only our own calls are in the way, and it has to wait for one to end.

    Raises:
        Refused: there are too few GPUs, or other programs hold what it needs.
    """
    if len(devices) < count:
        there = f"there {'is' if len(devices) == 1 else 'are'} {len(devices) or 'none'}"
        raise Refused(f"{gpus(count)} for each call cannot be had: {there} here.", verdict=NOT_STARTED)
    left = [_left(device, holding, claims) for device in devices]
    fitting = [number for number, device in enumerate(left) if device is not None and not fit.problems([device])]
    if len(fitting) >= count:
        best = sorted(fitting, key=lambda number: -((left[number] or devices[number]).gpu.free or 0))
        return tuple(devices[number] for number in best[:count])
    found = fit.problems([_at_best(device, claims) for device in devices])
    if len(devices) - len(found) >= count:
        return None
    have = f"{len(devices) - len(found) or 'none'} ha{'s' if len(devices) - len(found) == 1 else 've'} room"
    lines = [
        f"The call needs {gpus(count)}, and {have} for it.",
        fit.describe(found, holding.processes, names()),
        *dict.fromkeys(device.words.lease_note for device in devices if device.words and device.words.lease_note),
    ]
    emptied = fit.problems([_emptied(device) for device in devices])
    raise Refused("\n".join(lines), verdict=NOT_STARTED, crowded=len(devices) - len(emptied) >= count)


def _emptied(device: Device) -> Device:
    """Return the GPU as it is when no process uses it, as far as that can be known."""
    return replace(device, gpu=replace(device.gpu, free=usable(device.gpu)))


def places(devices: Sequence[Device], claims: Sequence[Claim], count: int) -> int:
    """Return how many calls of `count` GPUs each have room at once when no other call of ours runs; at least 1."""
    fitting = [device for device in (_at_best(device, claims) for device in devices) if not fit.problems([device])]
    room = 0
    for device in fitting:
        needed = size(device)
        room += 1 if needed is None else (device.gpu.free or 0) // needed
    return max(1, room // count)


def _left(device: Device, holding: Holding, claims: Sequence[Claim]) -> Device | None:
    """Return the GPU without what our calls may still take of it; None if it cannot be shared with them."""
    gpu, ours = device.gpu, [claim for claim in claims if claim.gpu == key(device.gpu)]
    if not ours:
        return device
    if size(device) is None or gpu.free is None:
        return None
    free = gpu.free
    for claim, held in zip(ours, holding.of(ours, gpu), strict=True):
        if claim.size is None:
            return None
        free -= max(0, claim.size - held)
    return replace(device, gpu=replace(gpu, free=max(0, free)))


def _at_best(device: Device, claims: Sequence[Claim]) -> Device:
    """Return the GPU as it may be when our calls there have ended: how much of it others hold is seen only then."""
    if device.gpu.free is None or all(claim.gpu != key(device.gpu) for claim in claims):
        return device
    return _emptied(device)


def usable(gpu: Gpu) -> int | None:
    """Return the bytes that processes can share: what driver and firmware keep is never among them."""
    return None if gpu.total is None else gpu.total - (gpu.reserved or 0)


def gpus(count: int) -> str:
    """Return a number of GPUs as text."""
    return f"{count} GPU{'s' * (count != 1)}"


def asked(device: Device) -> Device:
    """Return the device with the limits that an isolated call gets, where its words ask for those in `device`."""
    if device.words is None:
        return device
    context = context_bytes(device.gpu.total or 0)
    return replace(device, limits=device.words.leased(device.limits, usable(device.gpu) or 0, context))


def lowered(device: Device) -> Device:
    """Return the device with a limit that is grown into lowered to what is free beside CUDA's context."""
    free, total, words = device.gpu.free, device.gpu.total, device.words
    if words is None or not words.grows or len(device.limits) != 1 or free is None or total is None:
        return device
    room = whole(max(0, free - context_bytes(total)))
    return replace(device, limits=(min(room, *device.limits),))


def settle(policy: Policy, devices: Sequence[Device]) -> Policy:
    """Return the policy for a process that has these GPUs: they are named, and what it takes of each is in bytes."""
    chosen = Visible(tuple(reference(device.gpu) for device in devices))
    memory = [
        device.words.settled(device.limits, None if len(devices) == 1 else reference(device.gpu))
        for device in devices
        if device.words is not None
    ]
    _, _, cpus = policy.by_nature()  # the other requests are in the devices
    return Policy((*cpus, chosen, *dict.fromkeys(memory)))
