"""Policy, GPUs and stage to a plan, or to a refusal. Pure: the machine is neither asked nor changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfgpu_magic.config import advice, environment, fit, refusal
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.state import GROWTH, Kernel, Stage
from tfgpu_magic.config.wish import Wish, fold
from tfgpu_magic.errors import Refused
from tfgpu_magic.monitor.snapshot import Snapshot
from tfgpu_magic.units import rounded


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


def make(words: Policy, snapshot: Snapshot, kernel: Kernel, owners: Callable[[], Mapping[int, str]] = dict) -> Plan:
    """Decide what to do about the words, whole, before any of it is done.

    Args:
        words: what is asked now; what was asked before and still counts is in `kernel`.
        snapshot: the machine's GPUs now.
        kernel: this process now.
        owners: tells who is behind each pid; asked only when memory is missing, to name who holds it.

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
    plan = _draft(words, snapshot, kernel)
    found = fit.problems(plan.devices)
    if found:
        ways = [way for way in advice.ways(words, found, plan.devices, snapshot) if _fits(way, snapshot, kernel)]
        lines = ["Fits now:", *(f"  %tf_gpu {way}" for way in ways)] if ways else []
        raise Refused("\n".join([f"Not applied. {fit.tell(found, snapshot.processes, owners())}", *lines]))
    return plan


def renew(plan: Plan, snapshot: Snapshot) -> Plan:
    """The same plan with the GPUs as they are now; a note says so where it no longer fits."""
    now = {gpu.uuid: gpu for gpu in snapshot.gpus}
    devices = tuple(replace(device, gpu=now.get(device.gpu.uuid, device.gpu)) for device in plan.devices)
    found = fit.problems(devices)
    notes = (*plan.notes, f"It does not fit any more. {fit.tell(found, (), {})}") if found else plan.notes
    return replace(plan, devices=devices, notes=notes)


def _draft(words: Policy, snapshot: Snapshot, kernel: Kernel) -> Plan:
    """The plan, with nothing yet said on whether there is memory for it."""
    policy = kernel.settled.then(words)
    wish = fold(policy, snapshot, kernel)
    devices = wish.devices()
    variables = environment.wanted(kernel, wish)
    return Plan(
        asked=kernel.asked.then(words),
        settled=policy.seeing(gpu.index if gpu.instance is None else str(gpu.uuid) for gpu in wish.picked),
        environment=variables,
        outside=kernel.outside,
        devices=devices,
        show=wish.chosen and kernel.frozen,
        cpus=wish.cpus,
        growth=wish.growth,
        notes=(
            *wish.notes,
            *environment.meddlers(kernel, devices, wish),
            *environment.overruled(kernel, wish, variables),
            *_left_over(wish, devices, snapshot),
        ),
    )


def _fits(words: Policy, snapshot: Snapshot, kernel: Kernel) -> bool:
    """Whether these words could be asked instead."""
    try:
        return not fit.problems(_draft(words, snapshot, kernel).devices)
    except Refused:
        return False


def _left_over(wish: Wish, devices: Sequence[Device], snapshot: Snapshot) -> Iterator[str]:
    """A note on the GPUs that no word speaks about, and on what is not taken at once."""
    hidden = [gpu.label for gpu in snapshot.gpus if gpu not in wish.seen and not gpu.mig]
    if wish.chosen and hidden:
        yield f"Hidden from TensorFlow: GPU {', '.join(hidden)}."
    unlimited = [device.gpu.label for device in devices if not device.limits]
    if wish.by_gpu and wish.everywhere is None and unlimited:
        what = "TensorFlow grows there as it needs" if wish.growth else "TensorFlow takes all that is free there"
        yield f"No limit is set for GPU {', '.join(unlimited)}: {what}. `visible` hides GPUs."
    total = sum(sum(device.limits) for device in devices)
    if total and wish.growth and not unlimited:
        yield f"Nothing is taken at the start; pools grow up to {rounded(total)} in all, as far as it is there."
