"""Resolves a policy to what is asked of each GPU: later requests replace earlier ones about the same. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.errors import Refused
from tfgpu_magic.ground.message import MAGIC, Message, listed, msg
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.policy import refusal
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.memory import Figures
from tfgpu_magic.policy.policy import NOTHING, Choice, GpuRef, Memory, Policy, Request
from tfgpu_magic.policy.process_state import DEVICES, LEAST_MULTIPROCESSORS, ProcessState
from tfgpu_magic.policy.promises import Promise, figures
from tfgpu_magic.policy.requests.visible import Visible

if TYPE_CHECKING:
    from tfgpu_magic.policy.ceiling import Ceiling

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
        everywhere: the request about the memory of every GPU that has no request of its own.
        by_gpu: the GPUs that have a request of their own, with it, by label.
        growth: whether pools grow: one setting for the whole process; None without a request about memory.
        cpus: how many logical CPUs, if that is requested.
        limits: bytes of the logical GPUs that are there without any request, by UUID.
        dropped: earlier requests that no longer count.
        notes: what the user should know.
        there: all of the machine's GPUs.
        promises: what other processes may yet take of them.
        ceiling: the most that may be taken of each GPU; None without a ceiling.
        hidden: whether the ceiling hides all GPUs that would be seen.
    """

    seen: list[Gpu]
    choice: Choice | None = None
    everywhere: Memory | None = None
    by_gpu: dict[str, tuple[Gpu, Memory]] = field(default_factory=dict)
    growth: bool | None = None
    cpus: int | None = None
    limits: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dropped: list[Request] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)
    there: Sequence[Gpu] = ()
    promises: Sequence[Promise] = ()
    ceiling: Ceiling | None = None
    hidden: bool = False

    @property
    def memory(self) -> list[Memory]:
        """All requests about memory that still count."""
        everywhere = [] if self.everywhere is None else [self.everywhere]
        return everywhere + [request for _, request in self.by_gpu.values()]

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs that TensorFlow is to see, and what it is to take of each."""
        return tuple(self._device(gpu) for gpu in self.seen)

    def words(self, gpu: Gpu) -> Memory | None:
        """Return the request about the memory of a GPU, if there is any."""
        return self.by_gpu[gpu.label][1] if gpu.label in self.by_gpu else self.everywhere

    def figures(self, gpu: Gpu) -> Figures:
        """Return a GPU's figures beside what others are promised of it."""
        return figures(self.promises, gpu)

    def _device(self, gpu: Gpu) -> Device:
        words = self.words(gpu)
        there = self.limits.get(str(gpu.uuid), ()) if not self.memory else ()
        if self.ceiling is not None:
            counts = self.ceiling.clamped(words, self.figures(gpu), grows=bool(self.growth))
            capped = words is None or not words.limited
            return Device(gpu=gpu, limits=counts.sizes(self.figures(gpu)), words=counts, capped=capped)
        limits = () if words is None else words.sizes(self.figures(gpu))
        return Device(gpu=gpu, limits=limits or there, words=words)


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
    resolved = Resolved(seen=seen_without_words(snapshot, process), limits=process.limits)
    together = earlier.then(policy)
    if process.finds_no_gpu and any(request.names_gpus for request in policy):
        raise Refused(refusal.finds_no_gpu(gpu.label for gpu in _with(process.shown, snapshot)))
    if not snapshot.gpus:
        why = snapshot.error or "The driver shows no GPU here."
        resolved.notes.append(refusal.without_gpus(together, why, absent=snapshot.absent))
    _, resolved.choice, cpus = together.by_nature()
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
    _share(resolved, earlier.then(policy), policy, snapshot, process)
    return resolved


def _share(resolved: Resolved, together: Policy, policy: Policy, snapshot: Snapshot, process: ProcessState) -> None:
    """Record what is taken of each GPU that is seen, under the ceiling."""
    resolved.there, resolved.promises = snapshot.gpus, process.promises
    for request in together.memory:
        _take(resolved, request, policy, snapshot)
    counting = resolved.memory
    if process.ceiling is not None:
        _hold(resolved, policy, snapshot, process.ceiling)
        counting = [request for request in resolved.memory if request.limited] or resolved.memory
    if any(request.releases for request in resolved.memory):
        _check_release(resolved, together.without(resolved.dropped))
    if len({request.grows for request in counting}) > 1:
        raise refusal.growth_must_agree(policy, together.without(resolved.dropped), resolved.memory)
    if counting or process.ceiling is not None:
        resolved.growth = counting[0].grows if counting else True
    if process.ceiling is not None:
        capped = [gpu for gpu in resolved.seen if (words := resolved.words(gpu)) is None or not words.limited]
        resolved.notes += process.ceiling.notes(capped, grows=bool(resolved.growth))


def lowered(policy: Policy, gpus: Sequence[Gpu], process: ProcessState) -> Policy:
    """Return a policy of which each request takes no more of these GPUs than the process's ceiling allows."""
    most = process.ceiling
    if most is None:
        return policy

    def under(request: Memory) -> Memory:
        about = gpus if request.gpu is None else [gpu for gpu in gpus if find(request.gpu, gpus) == gpu]
        return most.under(request, about, functools.partial(figures, process.promises))

    return Policy(tuple(under(request) if isinstance(request, Memory) else request for request in policy))


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
    gpus = list(request.choose(_ChoiceOfGpus(request, policy, snapshot, process, process.claims, notes.append)))
    if request.refs:
        refusal.if_it_cannot_be_shown(gpus)
    if not process.frozen:
        return gpus
    order = list(process.shown or ())
    refusal.if_frozen(gpus, order, policy, process, ordered=bool(request.refs))
    return sorted(gpus, key=lambda gpu: order.index(str(gpu.uuid)))


class _ChoiceOfGpus(NamedTuple):
    """The GPUs that a request chooses from: `policy.Candidates`."""

    request: Choice
    policy: Policy
    snapshot: Snapshot
    process: ProcessState
    claims: Mapping[str, float]
    note: Callable[[Message], None]

    @property
    def bound(self) -> Message | None:
        variable = self.process.outside.get(DEVICES)
        if variable is None:
            return None
        return msg(
            "{variable} was not set by {magic}, and leaves no other GPUs.",
            variable=f"{DEVICES}={variable!r}",
            magic=MAGIC,
        )

    def named(self, ref: GpuRef) -> Gpu:
        return _known(ref, self.request, self.policy, self.snapshot)

    def everything(self) -> Sequence[Gpu]:
        return _usable(self.snapshot.gpus)

    def given(self, count: int) -> Sequence[Gpu]:
        """Return the GPUs that this process was given; if nothing restricts it, each MIG instance too."""
        process, gpus = self.process, self.snapshot.gpus
        if process.shown is None and DEVICES in process.outside:
            raise refusal.order_unknown(process.outside[DEVICES])
        if DEVICES in process.outside or process.frozen or not any(gpu.mig for gpu in gpus):
            return _with(process.shown, self.snapshot)
        # CUDA shows a process one instance, any that its variable names, and nothing beside it.
        return [gpu for gpu in gpus if not gpu.mig and (gpu.instance is None or count == 1)]

    def useful(self, given: Sequence[Gpu]) -> Sequence[Gpu]:
        known = [gpu for gpu in given if not gpu.lost and gpu.free is not None]
        return [gpu for gpu in known if not is_skipped(gpu, given, self.process)]


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


def find(ref: GpuRef, gpus: Sequence[Gpu]) -> Gpu | Message:
    """Return the GPU that is meant, or why there is none."""
    if isinstance(ref, int):
        matches = [gpu for gpu in gpus if gpu.index == ref and gpu.instance is None]
    else:
        same = [gpu for gpu in gpus if ref.lower() in ((gpu.uuid or "").lower(), gpu.label)]
        number = ref.partition("-")[2]
        if not same and number in {str(gpu.index) for gpu in gpus}:
            return msg(
                "{ref} may begin the UUID of any GPU. For nvidia-smi's GPU {number}, write {number}.",
                ref=ref,
                number=number,
            )
        matches = same or [gpu for gpu in gpus if (gpu.uuid or "").lower().startswith(ref.lower())]
    if not matches:
        return msg("There is no GPU {ref} here; there {are}.", ref=ref, are=_are(gpus))
    if len(matches) > 1:
        return msg("{ref} may be any of {count} GPUs; write more of its UUID.", ref=ref, count=len(matches))
    if matches[0].mig:
        instances = [gpu.label for gpu in gpus if gpu.index == matches[0].index and gpu.instance is not None]
        return msg(
            "GPU {ref} is in MIG mode; name an instance of it: {gpus}.",
            ref=ref,
            gpus=", ".join(instances) or "it has none",
        )
    return matches[0]


def _are(gpus: Sequence[Gpu]) -> str | Message:
    labels = [gpu.label for gpu in gpus]
    if not labels:
        return "are no GPUs"
    return f"is GPU {labels[0]}" if len(labels) == 1 else msg("are GPUs {gpus}", gpus=listed(labels))


def _take(resolved: Resolved, request: Memory, policy: Policy, snapshot: Snapshot) -> None:
    """Record a request about the memory of every GPU, or of one; for a hidden GPU it is refused or dropped."""
    if request.gpu is None:
        resolved.everywhere = request
        resolved.by_gpu.clear()
        return
    gpu = _known(request.gpu, request, policy, snapshot)
    if gpu in resolved.seen:
        resolved.by_gpu[gpu.label] = (gpu, request)
    elif request in policy.requests:
        raise refusal.hidden(gpu, resolved.seen)
    else:
        resolved.dropped.append(request)
        resolved.notes.append(
            msg("GPU {gpu} is hidden now, so `{request}` no longer counts.", gpu=gpu.label, request=request)
        )


def _hold(resolved: Resolved, policy: Policy, snapshot: Snapshot, most: Ceiling) -> None:
    """Hold the policy under the ceiling.

    Raises:
        Refused: what is asked now passes it, or nothing is known of the GPUs.
    """
    if not (snapshot.gpus or snapshot.absent) and (resolved.choice is None or resolved.choice.everything):
        raise most.unknown(snapshot.error or "")
    if resolved.seen:
        most.check([(gpu, resolved.words(gpu)) for gpu in resolved.seen], resolved.choice, policy, resolved.figures)
    if most.amounts:
        resolved.ceiling = most
    elif resolved.seen:
        resolved.choice, resolved.seen, resolved.everywhere = Visible(()), [], None
        resolved.hidden = True
        resolved.by_gpu.clear()


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
    """Tell whether TensorFlow leaves this GPU out, or will, as it has too few multiprocessors beside the others."""
    if process.tensorflow_sees is not None:
        return gpu.uuid in process.skipped
    known = [other.multiprocessors for other in seen if other.multiprocessors is not None]
    least = min(LEAST_SMS, max(known, default=LEAST_SMS))
    setting = process.environment.get(LEAST_MULTIPROCESSORS, "")
    return gpu.multiprocessors is not None and gpu.multiprocessors < (int(setting) if setting.isdigit() else least)
