"""Policy, GPUs and stage to a plan, or to a refusal. Pure: the machine is neither asked nor changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfgpu_magic.config import fit, refusal, visible
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
from tfgpu_magic.config.state import ALLOCATOR, DEVICE_CAP, DEVICES, GROWTH, LEAST_MULTIPROCESSORS, ORDER, Kernel, Stage
from tfgpu_magic.errors import Refused
from tfgpu_magic.monitor.snapshot import Gpu, Snapshot
from tfgpu_magic.units import MIB, rounded

LEAST_SMS = 8
LEAST_CAPABILITY = (6, 0)
"""What TensorFlow's wheels ask of a GPU before they use it (gpu_device.cc, and the CUDA architectures they carry)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will be done, all of it checked.

    Attributes:
        asked: all the words that count, the new ones included.
        settled: the same with each `Pick` settled to GPUs.
        environment: what each variable is to be; None removes it.
        outside: what the same variables are without us.
        devices: the GPUs that TensorFlow will see, in its order.
        show: whether to name them to TensorFlow as well, because CUDA no longer reads its variable.
        cpus: how many logical CPUs; None leaves TensorFlow's one.
        growth: whether pools grow; None where nothing was asked about memory.
        in_force: it is so already, and there is nothing to do.
        notes: what else the person should know, a sentence each.
    """

    asked: Policy
    settled: Policy
    environment: Mapping[str, str | None] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    show: bool = False
    cpus: int | None = None
    growth: bool | None = None
    in_force: bool = False
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> list[tuple[str, str | None]]:
        """The variables that are to be other than outside this process."""
        return [(name, value) for name, value in self.environment.items() if value != self.outside.get(name)]

    @property
    def grows(self) -> bool:
        """Whether pools will grow, because it was asked or because the environment says so."""
        return self.outside.get(GROWTH) == "true" if self.growth is None else self.growth

    @property
    def limited(self) -> bool:
        """Whether any GPU gets logical GPUs, which only TensorFlow's own API can make."""
        return any(device.limits for device in self.devices)

    @property
    def needs_tensorflow(self) -> bool:
        """Whether the environment alone is not enough, so that TensorFlow must be told."""
        return self.limited or self.cpus is not None or self.show


def in_words(limits: Sequence[int], *, grows: bool) -> str:
    """What is taken of a GPU, in a few words: ``limit 2.0 GiB``, ``split 2 × 1.0 GiB, grows``, ``growth``."""
    if not limits:
        return "growth" if grows else "all that is free"
    if len(limits) == 1:
        return f"limit {rounded(limits[0])}{', grows' * grows}"
    alike = len(set(limits)) == 1
    parts = f"{len(limits)} × {rounded(limits[0])}" if alike else " + ".join(map(rounded, limits))
    return f"split {parts}{', grows' * grows}"


@dataclass(slots=True)
class _Wish:
    """The words folded together: what is wanted of which GPU. Lives only while a plan is made."""

    seen: list[Gpu]
    chosen: bool = False
    order: bool = False
    everywhere: Growth | Limit | Split | None = None
    by_gpu: dict[str, tuple[Gpu, Limit | Split]] = field(default_factory=dict)
    cpus: int | None = None
    picked: list[Gpu] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def memory(self) -> list[Growth | Limit | Split]:
        everywhere = [] if self.everywhere is None else [self.everywhere]
        return everywhere + [request for _, request in self.by_gpu.values()]


def make(words: Policy, snapshot: Snapshot, kernel: Kernel, owners: Mapping[int, str] | None = None) -> Plan:
    """Decide what to do about the words, whole, before any of it is done.

    Args:
        words: what is asked now; what was asked before and still counts is in `kernel`.
        snapshot: the machine's GPUs now.
        kernel: this process now.
        owners: who is behind each pid, for naming who holds the memory that is missing.

    Returns:
        The plan. `Plan.in_force` says that nothing is left to do.

    Raises:
        Refused: it cannot be enforced; the error says why, for every GPU, and what can be done instead.
        TooLate: a new process could enforce it.
    """
    asked = kernel.asked.then(words)
    if kernel.stage is Stage.READY and asked == kernel.asked:
        return Plan(asked=asked, settled=kernel.settled, in_force=True)
    refusal.if_too_late(words, kernel)
    policy = kernel.settled.then(words)
    wish = _fold(policy, snapshot, kernel)
    growth = _growth(wish)
    devices = [Device(gpu=gpu, limits=_limits(wish, gpu), words=_words(wish, gpu)) for gpu in wish.seen]
    _check_environment(kernel, devices, growth, wish)
    fit.check(devices, snapshot, owners or {})
    environment = _environment(kernel, wish, growth)
    _note_what_is_overruled(kernel, wish, environment)
    _note_what_is_left(wish, devices, growth)
    return Plan(
        asked=asked,
        settled=policy.seeing(gpu.index if gpu.instance is None else str(gpu.uuid) for gpu in wish.picked),
        environment=environment,
        outside=kernel.outside,
        devices=tuple(devices),
        show=wish.chosen and kernel.frozen,
        cpus=wish.cpus,
        growth=growth,
        notes=tuple(wish.notes),
    )


def _fold(policy: Policy, snapshot: Snapshot, kernel: Kernel) -> _Wish:
    """Take the words in their order; later ones win for the GPUs they name."""
    wish = _Wish(seen=_shown(snapshot, kernel.shown if kernel.tensorflow_sees is None else kernel.tensorflow_sees))
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


def _see(wish: _Wish, gpus: Sequence[Gpu], kernel: Kernel, *, ordered: bool = False) -> None:
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
    useful = [gpu for gpu in given if gpu.error is None and gpu.free is not None and not _skipped(gpu, given, kernel)]
    enough = [gpu for gpu in useful if (gpu.free or 0) >= _needed(request.need, gpu)]
    refusal.if_too_few(request, enough, given)
    return sorted(enough, key=lambda gpu: -(gpu.free or 0))[: request.count]


def _needed(need: Amount | None, gpu: Gpu) -> int:
    """Bytes that must be free: what is needed, and the context that comes with it."""
    total = gpu.total or 0
    return (0 if need is None else amount_bytes(need, total)) + context_bytes(total)


def _growth(wish: _Wish) -> bool | None:
    """Whether pools grow: one setting for the whole process, so the words must agree on it."""
    wanted = {request.on if isinstance(request, Growth) else request.grow for request in wish.memory}
    if len(wanted) > 1:
        raise refusal.of_two_minds(wish.memory)
    return wanted.pop() if wanted else None


def _words(wish: _Wish, gpu: Gpu) -> Growth | Limit | Split | None:
    return wish.by_gpu[gpu.label][1] if gpu.label in wish.by_gpu else wish.everywhere


def _limits(wish: _Wish, gpu: Gpu) -> tuple[int, ...]:
    """Bytes of each logical GPU, in whole MiB as TensorFlow counts; none where there is no limit."""
    total, free = gpu.total or 0, gpu.free or 0

    def whole(amount: Amount) -> int:
        return amount_bytes(amount, total) // MIB * MIB

    match _words(wish, gpu):
        case Limit(amount=amount):
            return (whole(amount),)
        case Split(parts=int(count)):
            return (whole(max(free - context_bytes(total), 0) // count),) * count
        case Split(parts=tuple(sizes)):
            return tuple(map(whole, sizes))
    return ()


def _skipped(gpu: Gpu, seen: Sequence[Gpu], kernel: Kernel) -> bool:
    """Whether TensorFlow will leave this GPU out: too few multiprocessors beside the others, or too old."""
    if gpu.uuid in kernel.skipped:
        return True
    if gpu.capability is not None and gpu.capability < LEAST_CAPABILITY:
        return True
    known = [other.multiprocessors for other in seen if other.multiprocessors is not None]
    least = min(LEAST_SMS, max(known, default=LEAST_SMS))
    setting = kernel.environment.get(LEAST_MULTIPROCESSORS, "")
    return gpu.multiprocessors is not None and gpu.multiprocessors < (int(setting) if setting.isdigit() else least)


def _check_environment(kernel: Kernel, devices: Sequence[Device], growth: bool | None, wish: _Wish) -> None:
    """Refuse or note what else in this process would have a say."""
    skipped = [device.gpu for device in devices if _skipped(device.gpu, wish.seen, kernel)]
    if skipped:
        raise refusal.skipped(skipped, wish.seen)
    environment = kernel.environment
    if environment.get(ALLOCATOR) == "cuda_malloc_async":
        if any(device.limits for device in devices):
            raise refusal.async_allocator()
        if growth is not None:
            wish.notes.append(f"{ALLOCATOR}=cuda_malloc_async is set: memory grows as CUDA's own pool does.")
    if DEVICE_CAP in environment and growth is not None:
        wish.notes.append(
            f"{DEVICE_CAP}={environment[DEVICE_CAP]} is set outside, and caps every GPU that has no limit of its own."
        )
    if kernel.neighbour is not None:
        wish.notes.append(
            f"{kernel.neighbour} already uses a GPU in this kernel; no limit of TensorFlow's counts what it takes."
        )


def _environment(kernel: Kernel, wish: _Wish, growth: bool | None) -> dict[str, str | None]:
    """What each variable that we own is to be. Words win over the environment."""
    outside = kernel.outside.get(GROWTH)
    keeps = growth is None and wish.cpus is not None and kernel.grows
    wanted = outside
    if growth or keeps:
        wanted = "true"
    elif growth is not None and (outside == "true" or wish.everywhere == Growth(on=False)):
        wanted = "false"
    environment: dict[str, str | None] = {GROWTH: wanted}
    if not kernel.frozen:
        chosen = visible.variable(wish.seen) if wish.chosen else kernel.outside
        environment |= {name: chosen.get(name) for name in (ORDER, DEVICES)}
    return environment


def _note_what_is_overruled(kernel: Kernel, wish: _Wish, environment: Mapping[str, str | None]) -> None:
    """Say which settings from elsewhere the words overrule, and which TensorFlow ignores."""
    for name, value in environment.items():
        was = kernel.outside.get(name)
        if was is not None and value != was:
            wish.notes.append(f"{name} was {was!r} outside; in this process it is {value!r} now, because you asked.")
        elif name == GROWTH and value not in (None, "true", "false"):
            wish.notes.append(f"{name}={value!r} does nothing: only true and false count.")
    if kernel.grows and environment[GROWTH] == "true" and wish.cpus is not None:
        wish.notes.append(f"Logical CPUs would switch off what set_memory_growth was told; {GROWTH} keeps it on.")
    elif kernel.grows and environment[GROWTH] != "true" and wish.memory:
        wish.notes.append("This switches off what set_memory_growth was told: a limit without --grow is taken at once.")


def _note_what_is_left(wish: _Wish, devices: Sequence[Device], growth: bool | None) -> None:
    """Say what happens to the GPUs that no word speaks about."""
    unlimited = [device.gpu.label for device in devices if not device.limits]
    if wish.by_gpu and wish.everywhere is None and unlimited:
        what = "grow without a limit" if growth else "are taken whole"
        wish.notes.append(f"No limit is set for GPU {', '.join(unlimited)}: they {what}. Hide them with `visible`.")
    total = sum(sum(device.limits) for device in devices)
    if total and growth:
        wish.notes.append(
            f"Nothing is taken at the start; pools grow up to {rounded(total)} in all, as far as it is there."
        )
