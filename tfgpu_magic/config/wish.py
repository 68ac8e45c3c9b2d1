"""What all the words together want of which GPU: they are folded in their order, later ones over earlier ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tfgpu_magic.config import refusal, visible
from tfgpu_magic.config.fit import Device, context_bytes
from tfgpu_magic.config.policy import (
    Amount,
    GpuRef,
    Growth,
    Limit,
    Pick,
    Policy,
    Split,
    SplitCpu,
    Visible,
    amount_bytes,
)
from tfgpu_magic.config.state import LEAST_MULTIPROCESSORS, Kernel
from tfgpu_magic.errors import Refused
from tfgpu_magic.monitor.snapshot import Gpu, Snapshot
from tfgpu_magic.units import MIB

LEAST_SMS = 8
LEAST_CAPABILITY = (6, 0)
"""What TensorFlow's wheels ask of a GPU before they use it (gpu_device.cc, and the CUDA architectures they carry)."""


@dataclass(slots=True)
class Wish:
    """What is wanted. It lives only while a plan is made.

    Attributes:
        seen: the GPUs that TensorFlow is to see, in its order.
        chosen: whether the words chose them.
        everywhere: what is wanted of every GPU that has no words of its own.
        by_gpu: the words of the GPUs that have their own, by label.
        cpus: how many logical CPUs, if the words say.
        picked: the GPUs that `Pick` came to.
        notes: what the person should know, a sentence each.
    """

    seen: list[Gpu]
    chosen: bool = False
    everywhere: Growth | Limit | Split | None = None
    by_gpu: dict[str, tuple[Gpu, Limit | Split]] = field(default_factory=dict)
    cpus: int | None = None
    picked: list[Gpu] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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
            raise refusal.of_two_minds(self.memory)
        return wanted.pop() if wanted else None

    def devices(self) -> tuple[Device, ...]:
        """The GPUs that TensorFlow is to see, and what it is to take of each."""
        return tuple(self._device(gpu) for gpu in self.seen)

    def _device(self, gpu: Gpu) -> Device:
        words = self.by_gpu[gpu.label][1] if gpu.label in self.by_gpu else self.everywhere
        return Device(gpu=gpu, limits=_limits(words, gpu), words=words)


def fold(policy: Policy, snapshot: Snapshot, kernel: Kernel) -> Wish:
    """Take the words in their order; later ones win for the GPUs they name.

    Raises:
        Refused: they name a GPU that is not there, or hidden, or more than can be picked.
    """
    wish = Wish(seen=_shown(snapshot, kernel.shown if kernel.tensorflow_sees is None else kernel.tensorflow_sees))
    if not snapshot.gpus:
        why = snapshot.error or "This machine has no NVIDIA GPU."
        wish.notes.append(refusal.without_gpus(policy, why, absent=snapshot.absent))
    for request in policy:
        match request:
            case Growth():
                wish.everywhere = request
                wish.by_gpu.clear()
            case Limit(gpu=None) | Split(gpu=None):
                wish.everywhere = request
                wish.by_gpu.clear()
            case Limit(gpu=ref) | Split(gpu=ref):
                gpu = _named(ref, snapshot, wish.seen)
                wish.by_gpu[gpu.label] = (gpu, request)
            case Visible(gpus=None):
                _see(wish, _shown(snapshot, kernel.shown) if kernel.frozen else _usable(snapshot.gpus), kernel)
            case Visible(gpus=refs):
                _see(wish, [_known(ref, snapshot.gpus) for ref in refs or ()], kernel, ordered=True)
            case Pick():
                wish.picked = _pick(request, snapshot, kernel)
                _see(wish, wish.picked, kernel)
            case SplitCpu(parts=parts):
                wish.cpus = parts
    return wish


def _shown(snapshot: Snapshot, uuids: Sequence[str] | None) -> list[Gpu]:
    """The GPUs of these UUIDs, in their order; all of them where nobody knows."""
    if uuids is None:
        return _usable(snapshot.gpus)
    by_uuid = {gpu.uuid: gpu for gpu in snapshot.gpus}
    return [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]


def _usable(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Whole GPUs; where MIG is on, CUDA shows a process one instance and no GPU."""
    whole = [gpu for gpu in gpus if not gpu.mig and gpu.instance is None]
    return whole if len(whole) == len(gpus) else [gpu for gpu in gpus if gpu.instance is not None][:1]


def _known(ref: GpuRef, gpus: Sequence[Gpu]) -> Gpu:
    gpu = visible.find(ref, gpus)
    if isinstance(gpu, str):
        raise Refused(f"Not applied. {gpu}")
    return gpu


def _named(ref: GpuRef | None, snapshot: Snapshot, seen: Sequence[Gpu]) -> Gpu:
    assert ref is not None  # noqa: S101  # for the type checker: None is matched before
    gpu = _known(ref, snapshot.gpus)
    if gpu not in seen:
        raise Refused(
            f"Not applied. GPU {gpu.label} is hidden from TensorFlow, so nothing can be set for it. "
            f"Show it first:   %tf_gpu visible {','.join([*(g.label for g in seen), gpu.label])}"
        )
    return gpu


def _see(wish: Wish, gpus: Sequence[Gpu], kernel: Kernel, *, ordered: bool = False) -> None:
    """Make these the GPUs that TensorFlow sees."""
    if kernel.frozen:
        order = list(kernel.shown or ())
        refusal.if_frozen(gpus, order, ordered=ordered)
        gpus = sorted(gpus, key=lambda gpu: order.index(str(gpu.uuid)))
    wish.seen = list(gpus)
    wish.chosen = True
    for label, (gpu, request) in list(wish.by_gpu.items()):
        if gpu not in gpus:
            del wish.by_gpu[label]
            wish.notes.append(f"GPU {label} is hidden now, so `{request}` no longer counts.")


def _pick(request: Pick, snapshot: Snapshot, kernel: Kernel) -> list[Gpu]:
    """The GPUs with most free memory, of those that this process was given; the first of equals."""
    given = _shown(snapshot, kernel.shown)
    useful = [gpu for gpu in given if gpu.error is None and gpu.free is not None and not is_skipped(gpu, given, kernel)]
    enough = [gpu for gpu in useful if (gpu.free or 0) >= _needed(request.need, gpu)]
    refusal.if_too_few(request, enough, given)
    return sorted(enough, key=lambda gpu: -(gpu.free or 0))[: request.count]


def _needed(need: Amount | None, gpu: Gpu) -> int:
    """Bytes that must be free: what is needed, and the context that comes with it."""
    total = gpu.total or 0
    return (0 if need is None else amount_bytes(need, total)) + context_bytes(total)


def _limits(words: Growth | Limit | Split | None, gpu: Gpu) -> tuple[int, ...]:
    """Bytes of each logical GPU, in whole MiB as TensorFlow counts; none where there is no limit."""
    total, free = gpu.total or 0, gpu.free or 0

    def whole(amount: Amount) -> int:
        return amount_bytes(amount, total) // MIB * MIB

    match words:
        case Limit(amount=amount):
            return (whole(amount),)
        case Split(parts=int(count)):
            return (whole(max(free - context_bytes(total), 0) // count),) * count
        case Split(parts=tuple(sizes)):
            return tuple(map(whole, sizes))
    return ()


def is_skipped(gpu: Gpu, seen: Sequence[Gpu], kernel: Kernel) -> bool:
    """Whether TensorFlow will leave this GPU out: too few multiprocessors beside the others, or too old."""
    if gpu.uuid in kernel.skipped:
        return True
    if gpu.capability is not None and gpu.capability < LEAST_CAPABILITY:
        return True
    known = [other.multiprocessors for other in seen if other.multiprocessors is not None]
    least = min(LEAST_SMS, max(known, default=LEAST_SMS))
    setting = kernel.environment.get(LEAST_MULTIPROCESSORS, "")
    return gpu.multiprocessors is not None and gpu.multiprocessors < (int(setting) if setting.isdigit() else least)
