"""What all the words together want of which GPU: they are folded in their order, later ones over earlier ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfgpu_magic.config import advice, refusal, visible
from tfgpu_magic.config.fit import Device, context_bytes, reserve_bytes
from tfgpu_magic.config.policy import (
    NOTHING,
    Amount,
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
from tfgpu_magic.config.state import DEVICES, LEAST_MULTIPROCESSORS, Kernel
from tfgpu_magic.monitor.snapshot import Gpu, Snapshot
from tfgpu_magic.monitor.sources import makers
from tfgpu_magic.units import MIB

LEAST_SMS = 8
"""How many multiprocessors TensorFlow asks of a GPU, if others have as many (gpu_device.cc)."""

LEAST_CAPABILITY = (6, 0)
"""The least compute capability that TensorFlow's own wheels have code for from 2.17 on; other builds have for less.

They list an older GPU all the same, and whether its operations fail only a real one can tell.
"""


_TELLING = 64 * MIB
"""Less free memory than that is no more: the least context is larger."""


@dataclass(slots=True)
class Wish:
    """What is wanted. It lives only while a plan is made.

    Attributes:
        seen: the GPUs that TensorFlow is to see, in its order.
        choice: what was said about that, if anything.
        everywhere: what is wanted of every GPU that has no words of its own.
        by_gpu: the words of the GPUs that have their own, by label.
        cpus: how many logical CPUs, if the words say.
        limits: bytes of the logical GPUs that are there without any words, by UUID.
        dropped: earlier words that no longer count.
        notes: what the person should know, a sentence each.
        there: all of the machine's GPUs.
    """

    seen: list[Gpu]
    choice: Visible | Pick | None = None
    everywhere: Growth | Limit | Split | None = None
    by_gpu: dict[str, tuple[Gpu, Limit | Split]] = field(default_factory=dict)
    cpus: int | None = None
    limits: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dropped: list[Request] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    there: Sequence[Gpu] = ()

    @property
    def memory(self) -> list[Growth | Limit | Split]:
        """All words about memory that still count."""
        everywhere = [] if self.everywhere is None else [self.everywhere]
        return everywhere + [request for _, request in self.by_gpu.values()]

    @property
    def growth(self) -> bool | None:
        """Whether pools grow: one setting for the whole process, so the words must agree on it.

        Raises:
            Refused: they do not.
        """
        wanted = {request.on if isinstance(request, Growth) else request.grow for request in self.memory}
        if len(wanted) > 1:
            raise refusal.growth_must_agree(self.memory)
        return wanted.pop() if wanted else None

    def devices(self) -> tuple[Device, ...]:
        """The GPUs that TensorFlow is to see, and what it is to take of each."""
        return tuple(self._device(gpu) for gpu in self.seen)

    def _device(self, gpu: Gpu) -> Device:
        words = self.by_gpu[gpu.label][1] if gpu.label in self.by_gpu else self.everywhere
        there = self.limits.get(str(gpu.uuid), ()) if not self.memory else ()
        return Device(gpu=gpu, limits=_limits(words, gpu) or there, words=words)


def fold(earlier: Policy, policy: Policy, snapshot: Snapshot, kernel: Kernel) -> Wish:
    """Take all words together: first which GPUs are seen, then what is taken of each, later words over earlier ones.

    Args:
        earlier: what was asked before and still counts.
        policy: what is asked now.
        snapshot: the machine's GPUs now.
        kernel: this process now.

    Raises:
        Refused: they name a GPU that is not there, or hidden, or more than can be picked.
        TooLate: CUDA is running, and cannot be told any more.
    """
    together = earlier.then(policy)
    wish = Wish(seen=seen_without_words(snapshot, kernel), limits=kernel.limits, there=snapshot.gpus)
    if not snapshot.gpus:
        why = snapshot.error or f"This machine has no {makers()} GPU."
        wish.notes.append(refusal.without_gpus(together, why, absent=snapshot.absent))
    for request in together:
        if isinstance(request, Visible | Pick):
            wish.choice, wish.seen = request, _choose(request, policy, snapshot, kernel)
    for request in together:
        match request:
            case Growth() | Limit(gpu=None) | Split(gpu=None):
                wish.everywhere = request
                wish.by_gpu.clear()
            case Limit(gpu=int() | str() as ref) | Split(gpu=int() | str() as ref):
                _take(wish, _known(ref, request, policy, snapshot), request, new=request in policy.requests)
            case SplitCpu(parts=parts):
                wish.cpus = parts
    if wish.choice is None and kernel.frozen and set(kernel.given or ()) - set(kernel.shown or ()):
        raise refusal.hidden_for_good(policy, kernel)
    return wish


def seen_without_words(snapshot: Snapshot, kernel: Kernel) -> list[Gpu]:
    """The GPUs that TensorFlow sees where nobody says which."""
    return _with(kernel.shown if kernel.tensorflow_sees is None else kernel.tensorflow_sees, snapshot)


def _with(uuids: Sequence[str] | None, snapshot: Snapshot) -> list[Gpu]:
    """The GPUs of these UUIDs, in their order; all of them where nobody knows."""
    if uuids is None:
        return _usable(snapshot.gpus)
    by_uuid = {gpu.uuid: gpu for gpu in snapshot.gpus}
    return [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]


def _usable(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Whole GPUs; where there is none, as MIG is on everywhere, CUDA shows a process one instance."""
    whole = [gpu for gpu in gpus if not gpu.mig and gpu.instance is None]
    return whole or [gpu for gpu in gpus if gpu.instance is not None][:1]


def _choose(request: Visible | Pick, policy: Policy, snapshot: Snapshot, kernel: Kernel) -> list[Gpu]:
    """The GPUs that the words make TensorFlow see."""
    if isinstance(request, Pick):
        gpus = _pick(request, snapshot, kernel)
    elif request.gpus is None:
        gpus = _usable(snapshot.gpus)
    else:
        gpus = [_known(ref, request, policy, snapshot) for ref in request.gpus]
        refusal.if_it_cannot_be_shown(gpus)
    if not kernel.frozen:
        return gpus
    order = list(kernel.shown or ())
    ordered = isinstance(request, Visible) and request.gpus is not None
    refusal.if_frozen(gpus, order, policy, kernel, ordered=ordered)
    return sorted(gpus, key=lambda gpu: order.index(str(gpu.uuid)))


def _known(ref: GpuRef, request: Request, policy: Policy, snapshot: Snapshot) -> Gpu:
    """The GPU that a request names.

    Raises:
        Refused: there is none, or it cannot be told which; the error has the words without it.
    """
    gpu = visible.find(ref, snapshot.gpus)
    if isinstance(gpu, str):
        rest = advice.without_missing(policy, request, snapshot.gpus)
        raise refusal.no_gpu(gpu, rest if request in policy.requests else NOTHING)
    return gpu


def _take(wish: Wish, gpu: Gpu, request: Limit | Split, *, new: bool) -> None:
    """Note what is wanted of one GPU; of a hidden one nothing can be."""
    if gpu in wish.seen:
        wish.by_gpu[gpu.label] = (gpu, request)
    elif new:
        raise refusal.hidden(gpu, wish.seen)
    else:
        wish.dropped.append(request)
        wish.notes.append(f"GPU {gpu.label} is hidden now, so `{request}` no longer counts.")


def _pick(request: Pick, snapshot: Snapshot, kernel: Kernel) -> list[Gpu]:
    """The GPUs with most free memory, of those that this process was given; of equals those that fewest have picked."""
    if kernel.shown is None and DEVICES in kernel.outside:
        raise refusal.order_unknown(kernel.outside[DEVICES])
    given = _offered(request, snapshot, kernel)
    useful = [gpu for gpu in given if not gpu.lost and gpu.free is not None and not is_skipped(gpu, given, kernel)]
    enough = [gpu for gpu in useful if (gpu.free or 0) >= _needed(request.need, gpu)]
    refusal.if_too_few(request, enough, given, kernel.outside.get(DEVICES))
    chosen: list[Gpu] = []
    while len(chosen) < request.count:
        left = [gpu for gpu in enough if gpu not in chosen]
        chosen.append(_best([gpu for gpu in left if not is_old(gpu, kernel)] or left, kernel.claims))
    return chosen


def _best(gpus: Sequence[Gpu], claims: Mapping[str, float]) -> Gpu:
    """The GPU with most free memory, where less than a context is equal: what others have picked may not show yet.

    Of equals it is one that fewest of this user's kernels have picked, then one with most free memory, as other users'
    contexts do show; and then the lot decides.
    """
    most = max(gpu.free or 0 for gpu in gpus)
    equal = [gpu for gpu in gpus if most - (gpu.free or 0) < context_bytes(gpu.total or 0)]
    taken = [claims.get(str(gpu.uuid), 0.0) for gpu in equal]
    ranked = zip(taken, equal, strict=True)
    return min(ranked, key=lambda one: (int(one[0]), -((one[1].free or 0) // _TELLING), one[0], -(one[1].free or 0)))[1]


def _offered(request: Pick, snapshot: Snapshot, kernel: Kernel) -> list[Gpu]:
    """The GPUs to pick from: those that this process was given; where nobody gave it any, each MIG instance too."""
    if DEVICES in kernel.outside or kernel.frozen or not any(gpu.mig for gpu in snapshot.gpus):
        return _with(kernel.shown, snapshot)
    # CUDA shows a process one instance, any that it is told, and nothing beside it.
    return [gpu for gpu in snapshot.gpus if not gpu.mig and (gpu.instance is None or request.count == 1)]


def _needed(need: Amount | None, gpu: Gpu) -> int:
    """Bytes that must be free: what is needed, and the context that comes with it."""
    total = gpu.total or 0
    return (0 if need is None else amount_bytes(need, total)) + context_bytes(total)


def _limits(words: Growth | Limit | Split | None, gpu: Gpu) -> tuple[int, ...]:
    """Bytes of each logical GPU, in whole MiB as TensorFlow counts; none where there is no limit.

    Raises:
        Refused: it is a part of a figure that the driver does not tell.
    """

    def whole(amount: Amount) -> int:
        if isinstance(amount, Share) and gpu.total is None:
            raise refusal.unknown(gpu, "how much memory it has")
        return amount_bytes(amount, gpu.total or 0) // MIB * MIB

    match words:
        case Limit(amount=amount):
            return (whole(amount),)
        case Split(parts=int(count)):
            if gpu.free is None or gpu.total is None:
                raise refusal.unknown(gpu, "how much is free")
            room = max(gpu.free - context_bytes(gpu.total), 0)
            return (max(room - reserve_bytes(room, gpu.capability), 0) // count // MIB * MIB,) * count
        case Split(parts=tuple(sizes)):
            return tuple(map(whole, sizes))
    return ()


def is_skipped(gpu: Gpu, seen: Sequence[Gpu], kernel: Kernel) -> bool:
    """Whether TensorFlow leaves this GPU out, or will, as it has too few multiprocessors beside the others."""
    if kernel.tensorflow_sees is not None:
        return gpu.uuid in kernel.skipped
    known = [other.multiprocessors for other in seen if other.multiprocessors is not None]
    least = min(LEAST_SMS, max(known, default=LEAST_SMS))
    setting = kernel.environment.get(LEAST_MULTIPROCESSORS, "")
    return gpu.multiprocessors is not None and gpu.multiprocessors < (int(setting) if setting.isdigit() else least)


def is_old(gpu: Gpu, kernel: Kernel) -> bool:
    """Whether TensorFlow's build may have no code for this GPU; once it has made its list, that is its own word."""
    return kernel.tensorflow_sees is None and gpu.capability is not None and gpu.capability < LEAST_CAPABILITY
