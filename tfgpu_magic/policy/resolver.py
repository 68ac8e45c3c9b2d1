"""Resolves a policy to what is asked of each GPU: later requests replace earlier ones about the same. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tfgpu_magic.errors import Refused
from tfgpu_magic.ground.message import MAGIC, Message, join_lines, msg
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.policy import refusal
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.memory import Figures
from tfgpu_magic.policy.policy import NOTHING, Candidates, Choice, GpuRef, Memory, Policy, Request, find
from tfgpu_magic.policy.process_state import DEVICES, LEAST_MULTIPROCESSORS, ProcessState
from tfgpu_magic.policy.requests.limit import Limit
from tfgpu_magic.policy.requests.visible import Visible

LEAST_SMS = 8
"""The multiprocessors that a GPU must have for TensorFlow to use it, if others have as many (gpu_device.cc)."""

POOLS_SINCE = (6, 0)
"""The least compute capability of a GPU on which CUDA has memory pools, by TensorFlow's own check of it."""


@dataclass(slots=True)
class Resolved:
    """A resolved policy. It exists only while a plan is made.

    Attributes:
        seen: the GPUs that TensorFlow is to see, in its order.
        choice: the request that decides this, if any.
        memory: the requests about memory that count, under the ceiling.
        growth: whether pools grow: one setting for the whole process; None without a request about memory.
        cpus: how many logical CPUs, if that is requested.
        devices: those GPUs, with what TensorFlow is to take of each.
        dropped: earlier requests that no longer count.
        notes: what the user should know.
        hidden: whether the ceiling hides all GPUs that would be seen.
    """

    seen: list[Gpu]
    choice: Choice | None = None
    memory: tuple[Memory, ...] = ()
    growth: bool | None = None
    cpus: int | None = None
    devices: list[Device] = field(default_factory=list)
    dropped: list[Request] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)
    hidden: bool = False


def resolve(earlier: Policy, policy: Policy, snapshot: Snapshot, process: ProcessState) -> Resolved:
    """Resolve a policy: first which GPUs are seen, then what is taken of each, later requests over earlier ones.

    Args:
        earlier: what was asked before and still counts.
        policy: what is asked now.
        snapshot: the machine's GPUs now.
        process: this process now.

    Raises:
        Refused: a request names a GPU that is absent or hidden, or picks too many; or requests disagree on growth, or
            pass the ceiling.
        TooLate: CUDA is running, and its list of GPUs cannot be changed any more.
    """
    resolved = Resolved(seen=seen_without_words(snapshot, process))
    together = earlier.then(policy)
    if process.finds_no_gpu and any(request.names_gpus for request in policy):
        raise Refused(refusal.finds_no_gpu(gpu.label for gpu in _with(process.shown, snapshot)))
    if not snapshot.gpus:
        why = snapshot.error or "The driver shows no GPU here."
        resolved.notes.append(refusal.without_gpus(together, why, absent=snapshot.absent))
    resolved.choice, cpus = together.choice, together.cpus
    if resolved.choice is not None:
        resolved.seen = _choose(resolved.choice, policy, snapshot, process, resolved.notes)
    resolved.cpus = cpus[-1].count if cpus else None
    _share(resolved, together, policy, snapshot, process)
    if resolved.choice is None and process.frozen and set(process.given or ()) - set(process.shown or ()):
        raise refusal.hidden_for_good(policy, process)
    return resolved


def shares(
    earlier: Policy, policy: Policy, seen: Sequence[str] | None, snapshot: Snapshot, process: ProcessState
) -> Resolved:
    """Resolve, as `resolve` does, what is taken of GPUs that are chosen already; `seen` has their UUIDs, None for all.

    Raises:
        Refused: as of `resolve`.
    """
    resolved = Resolved(seen=_with(seen, snapshot))
    _share(resolved, earlier.then(policy), policy, snapshot, process._replace(limits={}))
    return resolved


def _share(resolved: Resolved, together: Policy, policy: Policy, snapshot: Snapshot, process: ProcessState) -> None:
    """Record what is taken of each GPU that is seen, under the ceiling."""
    words = Policy(_counting(resolved, together, policy, snapshot))
    there = {} if words.requests else process.limits  # those that are there without any request
    if (most := process.ceiling) is not None:
        most.check(policy, resolved.choice, resolved.seen, snapshot)
        words, there = most.clamp(words, resolved.seen), {}
        if resolved.seen and not most.amounts:
            resolved.choice, resolved.seen, words, resolved.hidden = Visible(()), [], NOTHING, True
    resolved.memory = counting = words.memory
    if most is not None:
        counting = tuple(request for request in counting if request.limited) or counting
    if any(request.releases for request in resolved.memory):
        _check_release(resolved, together.without(resolved.dropped))
    if len({request.grows for request in counting}) > 1:
        raise refusal.growth_must_agree(policy, together.without(resolved.dropped), resolved.memory)
    if counting or most is not None:
        resolved.growth = counting[0].grows if counting else True
    for gpu in resolved.seen:
        request = words.about(gpu, resolved.seen)
        capped = most is not None and (request is None or not request.limited)
        if most is not None and capped:
            request = Limit(most.amount(gpu), grow=bool(resolved.growth))
        limits = () if request is None else request.sizes(Figures(gpu))
        resolved.devices.append(Device(gpu, limits or there.get(str(gpu.uuid), ()), request, capped))
    if most is not None:
        held = [device.gpu for device in resolved.devices if device.capped]
        resolved.notes += most.notes(held, grows=bool(resolved.growth))


def seen_without_words(snapshot: Snapshot, process: ProcessState) -> list[Gpu]:
    """Return the GPUs that TensorFlow sees where no request decides which."""
    return _with(process.shown if process.tensorflow_sees is None else process.tensorflow_sees, snapshot)


def _with(uuids: Sequence[str] | None, snapshot: Snapshot) -> list[Gpu]:
    """Return the GPUs of these UUIDs, in their order; all that are usable where the UUIDs are unknown."""
    if uuids is None:
        return _usable(snapshot.gpus)
    by_uuid = {gpu.uuid: gpu for gpu in snapshot.gpus}
    return [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]


def _usable(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return whole GPUs; where there is none, as MIG is on everywhere, the one instance that CUDA shows a process."""
    whole = [gpu for gpu in gpus if not gpu.mig and gpu.instance is None]
    return whole or [gpu for gpu in gpus if gpu.instance is not None][:1]


def _choose(
    request: Choice, policy: Policy, snapshot: Snapshot, process: ProcessState, notes: list[Message]
) -> list[Gpu]:
    """Return the GPUs that a request makes TensorFlow see; add notes on them."""
    if request.everything:
        gpus = _usable(snapshot.gpus)
    else:
        gpus = [_known(ref, request, policy, snapshot) for ref in request.refs]
    if request.picks:
        try:
            gpus = list(request.pick(_candidates(request.count, snapshot, process)))
        except Refused as error:
            if not request.or_cpu:
                raise
            notes.append(join_lines((error.reason, "So TensorFlow uses the CPU.")))
    if request.refs:
        refusal.if_it_cannot_be_shown(gpus)
    if not process.frozen:
        return gpus
    order = list(process.shown or ())
    refusal.if_frozen(gpus, order, policy, process, ordered=bool(request.refs))
    return sorted(gpus, key=lambda gpu: order.index(str(gpu.uuid)))


def _candidates(count: int, snapshot: Snapshot, process: ProcessState) -> Candidates:
    """Return the GPUs that so many can be picked from; if nothing restricts this process, each MIG instance too."""
    variable = process.outside.get(DEVICES)
    if process.shown is None and variable is not None:
        raise refusal.order_unknown(variable)
    given = _with(process.shown, snapshot)
    if variable is None and not process.frozen and any(gpu.mig for gpu in snapshot.gpus):
        # CUDA shows a process one instance, any that its variable names, and nothing beside it.
        given = [gpu for gpu in snapshot.gpus if not gpu.mig and (gpu.instance is None or count == 1)]
    known = [gpu for gpu in given if not gpu.lost and gpu.free is not None]
    bound = msg(
        "{variable} was not set by {magic}, and leaves no other GPUs.", variable=f"{DEVICES}={variable!r}", magic=MAGIC
    )
    return Candidates(
        given=given,
        useful=[gpu for gpu in known if not is_skipped(gpu, given, process)],
        claims=process.claims,
        bound=None if variable is None else bound,
    )


def _known(ref: GpuRef, request: Request, policy: Policy, snapshot: Snapshot) -> Gpu:
    """Return the GPU that a request names.

    Raises:
        Refused: there is none, or more than one fits; the error has the rest of the policy as a way out.
    """
    gpu = find(ref, snapshot.gpus)
    if isinstance(gpu, Message):
        rest = policy.among(lambda other: isinstance(find(other, snapshot.gpus), Gpu))
        raise refusal.no_gpu(gpu, rest if request in policy.requests else NOTHING)
    return gpu


def _counting(resolved: Resolved, together: Policy, policy: Policy, snapshot: Snapshot) -> tuple[Memory, ...]:
    """Return the requests about memory that count; one for a hidden GPU is refused or dropped."""
    found: dict[str, Memory] = {}
    for request in together.memory:
        if request.gpu is None:
            found = {"": request}
            continue
        gpu = _known(request.gpu, request, policy, snapshot)
        if gpu in resolved.seen:
            found[gpu.label] = request
        elif request in policy.requests:
            raise refusal.hidden(gpu, resolved.seen)
        else:
            resolved.dropped.append(request)
            resolved.notes.append(
                msg("GPU {gpu} is hidden now, so `{request}` no longer counts.", gpu=gpu.label, request=request)
            )
    return tuple(found.values())


def _check_release(resolved: Resolved, together: Policy) -> None:
    """Refuse to give memory back where that cannot be.

    Raises:
        Refused: there are limits beside it, or a GPU has no memory pools.
    """
    if any(request.limited for request in resolved.memory):
        raise refusal.release_with_limits(together, resolved.memory)
    old = [gpu for gpu in resolved.seen if gpu.capability is not None and gpu.capability < POOLS_SINCE]
    if old:
        raise refusal.without_pools(old, resolved.seen)


def is_skipped(gpu: Gpu, seen: Sequence[Gpu], process: ProcessState) -> bool:
    """Return whether TensorFlow leaves this GPU out, or will, as it has too few multiprocessors beside the others."""
    if process.tensorflow_sees is not None:
        return gpu.uuid in process.skipped
    known = [other.multiprocessors for other in seen if other.multiprocessors is not None]
    least = min(LEAST_SMS, max(known, default=LEAST_SMS))
    setting = process.environment.get(LEAST_MULTIPROCESSORS, "")
    return gpu.multiprocessors is not None and gpu.multiprocessors < (int(setting) if setting.isdigit() else least)
