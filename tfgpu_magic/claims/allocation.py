"""Decides which GPUs an isolated call gets beside this user's other calls, and what claims leave to others. Pure.

Without a limit in its policy a call has a GPU to itself among our calls; with one it shares the GPU with others, as
far as there is room. Our calls are those of every process of this user; the `ledger` keeps their claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from tfgpu_magic.claims.claim import Claim
from tfgpu_magic.errors import NOT_STARTED, Refused
from tfgpu_magic.ground.message import Message, join_lines
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.policy import fit
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.memory import context_bytes, whole
from tfgpu_magic.policy.policy import Policy, reference
from tfgpu_magic.policy.promises import Promise
from tfgpu_magic.policy.requests.visible import Visible

if TYPE_CHECKING:
    from tfgpu_magic.ground.report import Report


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


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """What each process holds of the GPUs now.

    Attributes:
        processes: each process on each GPU.
        strangers: the pids that do not exist here, because the driver reports those of another namespace.
    """

    processes: Sequence[Process] = ()
    strangers: frozenset[int] = frozenset()

    def held_by(self, calls: Sequence[Claim], gpu: Gpu) -> list[int]:
        """Return how much of a GPU each of our calls there has taken of what it may.

        A call's process is found by its pid; if the driver reports pids of another namespace, it is taken to be the
        process of the nearest size that was not there when the call got the GPU.
        """
        here = [row for row in self.processes if row.gpu == gpu.label]
        strange = {row.pid: row for row in here if row.pid in self.strangers}
        found: list[list[Process]] = []
        sizes = [one.had[key(gpu)] or 0 for one in calls]
        for one, most in zip(calls, sizes, strict=True):
            own = [row for row in here if row.pid == one.pid]
            if not own and one.pid is not None:
                new = [row for pid, row in strange.items() if pid not in one.known]
                nearest = min(new, key=lambda row: (abs((row.held or 0) - most), row.pid), default=None)
                own = [] if nearest is None else [strange.pop(nearest.pid)]
            found.append(own)
        held = [sum(row.held or 0 for row in own) for own in found]
        if gpu.used is None or len(here) > sum(map(len, found)):
            return held
        # No other process is there: what the driver does not report of each, it reports of all together.
        unattributed = gpu.used - sum(held)
        for number, (most, own) in enumerate(zip(sizes, found, strict=True)):
            if any(row.held is None for row in own):
                held[number] = min(unattributed, most)
                unattributed -= held[number]
        return held


def choose(
    devices: Sequence[Device],
    held: ProcessMemory,
    calls: Sequence[Claim],
    count: int,
    names: Callable[[], Mapping[int, str]] = dict,
) -> tuple[Device, ...] | None:
    """Choose a call's GPUs: of those that have room, the ones with most memory left.

    Args:
        devices: the GPUs that it may have, as they are now, and what it would take of each.
        held: what each process holds on them now.
        calls: what our other calls have.
        count: how many it needs.
        names: returns the program behind each pid; called only for the text of a refusal.

    Returns:
        The GPUs, or None if only our own calls are in the way, and it has to wait for one to end.

    Raises:
        Refused: there are too few GPUs, or other programs hold what it needs.
    """
    if len(devices) < count:
        there = f"there {'is' if len(devices) == 1 else 'are'} {len(devices) or 'none'}"
        raise Refused(f"{gpu_count(count)} for each call cannot be had: {there} here.", verdict=NOT_STARTED)
    left = [_beside_claims(device, held, calls) for device in devices]
    fitting = [number for number, device in enumerate(left) if device is not None and not fit.problems([device])]
    if len(fitting) >= count:
        best = sorted(fitting, key=lambda number: -((left[number] or devices[number]).gpu.free or 0))
        return tuple(devices[number] for number in best[:count])
    found = fit.problems([_best_case(device, calls) for device in devices])
    if len(devices) - len(found) >= count:
        return None
    have = f"{len(devices) - len(found) or 'none'} ha{'s' if len(devices) - len(found) == 1 else 've'} room"
    lines: list[Message | str] = [
        f"The call needs {gpu_count(count)}, and {have} for it.",
        fit.describe(found, held.processes, names()),
    ]
    fits = {key(one.gpu): sum(one.limits) or None for one in devices if not fit.problems([_empty_gpu(one)])}
    raise Refused(join_lines(lines), verdict=NOT_STARTED, retryable=fits if len(fits) >= count else {})


def _empty_gpu(device: Device) -> Device:
    """Return the GPU as it is when no process uses it, as far as that can be known."""
    return device._replace(gpu=device.gpu._replace(free=device.gpu.usable))


def capacity(devices: Sequence[Device], calls: Sequence[Claim], count: int) -> int:
    """Return how many calls of `count` GPUs each fit at once if no other call of ours runs; at least 1."""
    fitting = [device for device in (_best_case(device, calls) for device in devices) if not fit.problems([device])]
    room = 0
    for device in fitting:
        needed = size(device)
        room += 1 if needed is None else (device.gpu.free or 0) // needed
    return max(1, room // count)


def _beside_claims(device: Device, held: ProcessMemory, calls: Sequence[Claim]) -> Device | None:
    """Return the GPU without what our calls may still take; None if it cannot be shared with them."""
    gpu, ours = device.gpu, [one for one in calls if key(device.gpu) in one.had]
    if not ours:
        return device
    if size(device) is None or gpu.free is None:
        return None
    free = gpu.free
    for one, taken in zip(ours, held.held_by(ours, gpu), strict=True):
        if (most := one.had[key(gpu)]) is None:
            return None
        free -= max(0, most - taken)
    return device._replace(gpu=gpu._replace(free=max(0, free)))


def _best_case(device: Device, calls: Sequence[Claim]) -> Device:
    """Return the GPU as it may be when our calls there have ended; only then is known what others hold."""
    if device.gpu.free is None or all(key(device.gpu) not in one.had for one in calls):
        return device
    return _empty_gpu(device)


def gpu_count(count: int) -> str:
    """Return a number of GPUs as text."""
    return f"{count} GPU{'s' * (count != 1)}"


def for_isolated_call(device: Device) -> Device:
    """Return the device with the limits of an isolated call: a percentage there includes CUDA's context."""
    if device.words is None:
        return device
    context = context_bytes(device.gpu.total or 0)
    limits = device.words.leased(device.limits, device.gpu.usable or 0, context)
    return device._replace(limits=limits, with_context=bool(limits) and limits != device.limits)


def capped_to_free(device: Device) -> Device:
    """Return the device; a limit with growth is lowered to what is free beside CUDA's context."""
    free, total, words = device.gpu.free, device.gpu.total, device.words
    if words is None or not words.grows or len(device.limits) != 1 or free is None or total is None:
        return device
    room = whole(max(0, free - context_bytes(total)))
    return device._replace(limits=(min(room, *device.limits),))


def resolve(policy: Policy, devices: Sequence[Device]) -> Policy:
    """Return the policy for a process that has these GPUs: they are named, and what it takes of each is in bytes."""
    chosen = Visible(tuple(reference(device.gpu) for device in devices))
    memory = [
        device.words.settled(device.limits, None if len(devices) == 1 else reference(device.gpu))
        for device in devices
        if device.words is not None
    ]
    cpus = policy.cpus  # the other requests are in the devices
    return Policy((*cpus, chosen, *dict.fromkeys(memory)))


def promises(
    snapshot: Snapshot, claims: Iterable[Claim], reports: Mapping[int, Report] = MappingProxyType({})
) -> tuple[Promise, ...]:
    """Return what claims promise of the machine's GPUs, in their order.

    What lacks no more than a CUDA context is taken: how large a context is was estimated.

    Args:
        snapshot: the GPUs, and what each process holds of them.
        claims: those of other processes, and of calls.
        reports: the other processes' reports by their numbers in the ledger: if the driver does not list a process by
            its pid, what its frameworks report counts as held.
    """
    gpus = {key(gpu): gpu for gpu in snapshot.gpus}
    holding = {(row.gpu, row.pid): row.held for row in snapshot.processes}
    found: dict[object, Promise] = {}
    for claim in claims:
        is_call = claim.kind == "call"
        report = None if is_call else reports.get(claim.slot)
        pid = claim.pid if report is None else report.pid
        reported = {} if report is None else {use.gpu: use.least_held for use in report.uses}
        for gpu in [gpus[uuid] for uuid in claim.had if uuid in gpus]:
            most, context = claim.had[key(gpu)], context_bytes(gpu.total or 0)
            most = gpu.usable if is_call and most is None else most if is_call or most is None else most + context
            held = holding.get((gpu.label, pid or 0))
            if held is not None and most is not None and most - held <= context:
                most = min(most, held)
            held = reported.get(key(gpu)) or 0 if held is None else held
            promise, name = Promise(key(gpu), pid, most, held), (key(gpu), claim.number if is_call else -1 - claim.slot)
            found[name] = max(found.get(name, promise), promise, key=lambda each: each.total)
    return tuple(found.values())
