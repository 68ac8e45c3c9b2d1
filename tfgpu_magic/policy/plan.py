"""What applying a policy will do: a plan, with a part for each framework. Plain data, which `decide` makes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import MappingProxyType

from tfgpu_magic.errors import Refused
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.memory import EXACT
from tfgpu_magic.policy.policy import NOTHING, Policy

_PLACES = 6
"""The places of a fraction: of a GPU of 100 GiB, the last is a tenth of a MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkPlan:
    """What one framework is asked, GPU by GPU, and what is done about it.

    Attributes:
        framework: its name for people.
        devices: the GPUs that it will see, in its order, each with its limits in bytes; one without is not limited.
        growth: whether memory is to be taken as it is needed; None where nothing was asked about memory.
        grows: whether it will be, by what was asked or by what other code or the environment has set.
        releases: whether what it does not use can go back to the driver while it lives.
        own: the user's own fraction of each GPU, where one is read: a ceiling lowers that, and never raises it.
        environment: the variables that say it; None removes one.
        show: whether to hide GPUs by its own API as well, because CUDA no longer reads its variable.
        cpus: how many logical CPUs; None leaves the framework's own number.
        takes: what it takes, as a phrase: ``up to 4 GiB, as it needs it``; empty where nothing was asked of it.
        notes: what else the user should know.
        unmet: why it is not held to all that holds for the process; None where it is.
    """

    framework: str = TENSORFLOW
    devices: tuple[Device, ...] = ()
    growth: bool | None = None
    grows: bool = False
    releases: bool = False
    own: Decimal = Decimal(1)
    environment: Mapping[str, str | None] = field(default_factory=dict)
    show: bool = False
    cpus: int | None = None
    takes: str = ""
    notes: Sequence[Message] = ()
    unmet: Message | None = None

    @property
    def limits(self) -> dict[str, int]:
        """The bytes that it may take of each GPU, by UUID; without the GPUs that are not limited."""
        return {str(one.gpu.uuid): sum(self._beside_own(one).limits) for one in self.devices if one.limits}

    @property
    def fractions(self) -> dict[str, Decimal]:
        """The same as fractions of what CUDA counts as the GPU's memory, before a lower one of the user's own counts.

        Raises:
            Refused: that is unknown.
        """
        return {str(device.gpu.uuid): _fraction(device) for device in self.devices if device.limits}

    @property
    def ceilings(self) -> frozenset[str]:
        """The UUIDs of the GPUs on which only the ceiling holds: there a lower fraction of the user's own stays."""
        return frozenset(str(device.gpu.uuid) for device in self.devices if device.capped)

    @property
    def gpus(self) -> frozenset[str]:
        """The UUIDs of the GPUs that its limits are for; of any other, it may take the smallest fraction."""
        return frozenset(str(device.gpu.uuid) for device in self.devices) if self.limits else frozenset()

    @property
    def by_api(self) -> bool:
        """Whether variables are not enough, so that its own API is needed."""
        return any(device.limits and device.words for device in self.devices) or self.cpus is not None or self.show

    @property
    def told(self) -> Message | None:
        """What it takes, as a sentence; None where nothing was asked of it."""
        return msg("{name} takes {takes}.", name=self.framework, takes=self.takes) if self.takes else None

    def tells_the_same(self, other: FrameworkPlan | None) -> bool:
        """Return whether both tell the framework the same; None tells it nothing."""
        there = other or FrameworkPlan(framework=self.framework)
        ours, theirs = ((one.environment, one._sizes, one.gpus, one.ceilings) for one in (self, there))
        return ours == theirs

    @property
    def _sizes(self) -> dict[str, int]:
        return {str(device.gpu.uuid): sum(device.limits) for device in self.devices if device.limits}

    def is_within(self, other: FrameworkPlan) -> bool:
        """Return whether it lets the framework take no more of any GPU than another part does."""
        return all(self.fractions.get(uuid, Decimal(1)) <= most for uuid, most in other.fractions.items())

    def beside_own(self) -> FrameworkPlan:
        """Return what it takes beside the user's own fraction."""
        return replace(self, devices=tuple(map(self._beside_own, self.devices)))

    def _beside_own(self, device: Device) -> Device:
        if not device.capped or self.own == 1:
            return device
        most = math.ceil(EXACT.multiply(self.own, cuda_total(device.gpu)))
        return device._replace(limits=(min(most, sum(device.limits)),))

    def lowered(self) -> list[Message]:
        """Return a note on the GPUs of which it takes less, where it has one fraction for all: the smallest."""
        fractions = self.fractions
        least = min(fractions.values(), default=Decimal(1))
        known = [device.gpu for device in self.devices if cuda_total(device.gpu)]
        lower = [gpu for gpu in known if fractions.get(str(gpu.uuid), Decimal(1)) > least]
        if not lower:
            return []
        most = ", ".join(_of(rounded(int(EXACT.multiply(least, cuda_total(gpu)))), [gpu.label]) for gpu in lower)
        return [
            msg(
                "{framework} has one limit for all GPUs, a part of each: it takes no more than {most}.",
                framework=self.framework,
                most=most,
            )
        ]

    def phrase(self, *, grows: bool) -> str:
        """Return what it takes of each GPU as a phrase: ``4 GiB of GPU 0, 1``; empty where nothing was asked."""
        alike: dict[str, list[str]] = {}
        for device in self.devices:
            if device.limits:
                alike.setdefault(rounded(sum(device.limits)), []).append(device.gpu.label)
        sizes = ", ".join(itertools.starmap(_of, alike.items()))
        if sizes:
            return f"up to {sizes}, as it needs it" if grows else sizes
        return "what it needs, as it needs it" if grows and self.growth is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkState:
    """A framework beside TensorFlow in this process, as a plan needs it.

    Attributes:
        name: its name for people.
        plan: decides what is done about it, as `Framework.plan` does. Pure.
        environment: the environment without our changes.
        version: the version that is installed or imported; empty if it is not known.
        held: bytes that it has taken of each GPU, by UUID.
        allocator: the name of its allocator, of one that tells it: ``pluggable``.
        grows_by: the variables with which it takes memory as it needs it, of one that does not by itself.
        imported: whether it is imported, and not only because TensorFlow is.
        on_cpu: whether it has no GPU in this process, and never will.
        fixed: whether it cannot be told anything any more.
        since: the cell that made it use a GPU, as a phrase, if that is known.
        strict: whether a user asks for it now, so that what cannot be had is refused. What was asked before, and what
            an administrator asks, holds as far as it can.
    """

    name: str = ""
    plan: Callable[[FrameworkPlan, FrameworkState], FrameworkPlan] = lambda wanted, _: wanted
    environment: Mapping[str, str] = field(default_factory=dict)
    version: tuple[int, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    allocator: str = ""
    grows_by: Mapping[str, str] = field(default_factory=dict)
    imported: bool = False
    on_cpu: bool = False
    fixed: bool = False
    since: str | None = None
    strict: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What applying a policy will do, all of it checked.

    Attributes:
        asked: the whole policy that counts for TensorFlow, the new requests included.
        settled: the same with each choice of GPUs replaced by the GPUs that were chosen.
        tensorflow: what is done about TensorFlow, and by variables about the GPUs that every framework sees.
        asked_of_all: what the frameworks beside TensorFlow are asked, in force or waiting.
        parts: what is done about each of those that are installed; None leaves it as it is.
        in_force: it is in force already, and there is nothing to do.
        judged: whether it was checked; else the policy waits, and is checked when a framework is imported.
        blind: whether the GPUs are unknown, though there may be some.
        configured: whether an administrator asks for it, and not the user.
        notes: what else the user should know.
        unmet: why it is not all that was asked; None where it is.
    """

    asked: Policy = NOTHING
    settled: Policy = NOTHING
    tensorflow: FrameworkPlan = FrameworkPlan()  # it is frozen
    asked_of_all: Policy = NOTHING
    parts: tuple[FrameworkPlan, ...] | None = None
    in_force: bool = False
    judged: bool = True
    blind: bool = False
    configured: bool = False
    notes: tuple[Message, ...] = ()
    unmet: Message | None = None

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPUs that TensorFlow will see, in its order."""
        return self.tensorflow.devices

    @property
    def environment(self) -> Mapping[str, str | None]:
        """The variables that the policy decides for TensorFlow; None removes one."""
        return self.tensorflow.environment

    @property
    def growth(self) -> bool | None:
        """Whether TensorFlow's memory is to grow; None where nothing was asked about memory."""
        return self.tensorflow.growth

    @property
    def grows(self) -> bool:
        """Whether it will, by what was asked or by what other code or the environment has set."""
        return self.tensorflow.grows

    @property
    def releases(self) -> bool:
        """Whether memory that TensorFlow does not use can go back to the driver while it lives."""
        return self.tensorflow.releases

    @property
    def cpus(self) -> int | None:
        """How many logical CPUs; None leaves TensorFlow's one."""
        return self.tensorflow.cpus

    @property
    def show(self) -> bool:
        """Whether to set TensorFlow's visible devices as well, because CUDA no longer reads its variable."""
        return self.tensorflow.show

    @property
    def variables(self) -> dict[str, str | None]:
        """The variables for every framework; None removes one."""
        parts = (self.tensorflow, *(self.parts or ()))
        return {name: value for part in parts for name, value in part.environment.items()}

    @property
    def limited(self) -> bool:
        """Whether the policy gives any GPU logical GPUs, which only TensorFlow's own API can make."""
        return any(device.limits and device.words for device in self.devices)

    def takes(self, device: Device) -> str:
        """Return what TensorFlow takes of one of the devices, as a short text."""
        return in_words(device.limits, grows=self.grows, releases=self.releases)

    @property
    def hidden(self) -> bool:
        """Whether TensorFlow's own API keeps it from all GPUs, which others may use, as beside Keras' backends."""
        return self.show and not self.devices

    @property
    def acts_on_nothing(self) -> bool:
        """Whether the requests about memory find no GPU, and nothing else was asked."""
        return self.growth is not None and not self.devices and self.cpus is None and not self.blind

    @property
    def needs_tensorflow(self) -> bool:
        """Whether the environment alone is not enough, so that TensorFlow's own API is needed."""
        return not self.judged or self.tensorflow.by_api

    def doing(self, **changes: object) -> Plan:
        """Return the plan with these attributes of TensorFlow's part changed."""
        return replace(self, tensorflow=replace(self.tensorflow, **changes))  # type: ignore[arg-type]  # by their names

    def hiding_all(self) -> Plan:
        """Return the plan with all GPUs kept from TensorFlow, and not from the other frameworks."""
        return self.doing(devices=(), show=True, growth=None)

    def most(
        self,
        limits: Mapping[str, Sequence[int]],
        imported: Collection[str],
        changed: Mapping[str, Mapping[str, int | None]] = MappingProxyType({}),
        *,
        promised: bool = False,
    ) -> dict[str, int]:
        """Return the bytes of each GPU that the imported frameworks may take together; if none is, the most of any.

        What only the ceiling allows a framework that is not imported is left out.

        Args:
            limits: those of TensorFlow's logical GPUs, by the GPU's UUID.
            imported: the names of the frameworks that are imported.
            changed: those that other code has set since of the other frameworks.
            promised: whether what only the ceiling limits is left out: it grows, and promises nothing.
        """
        capped = {str(device.gpu.uuid) for device in self.devices if device.capped} if promised and self.grows else ()
        of_all = any(request.limited for request in self.asked_of_all.memory)
        asked = {TENSORFLOW: {uuid: sum(sizes) for uuid, sizes in limits.items() if uuid not in capped}}
        for part in self.parts or ():
            if of_all or part.framework in imported:
                free = part.ceilings if promised else ()
                now = {**part.limits, **changed.get(part.framework, {})}
                asked[part.framework] = {uuid: size for uuid, size in now.items() if size and uuid not in free}
        most: dict[str, int] = {}
        for uuid in dict.fromkeys(uuid for found in asked.values() for uuid in found):
            sizes = {name: found[uuid] for name, found in asked.items() if found.get(uuid)}
            if sizes:
                most[uuid] = sum(size for name, size in sizes.items() if name in imported) or max(sizes.values())
        return most

    def claims(self, imported: Collection[str]) -> dict[str, int | None]:
        """Return the bytes of each GPU, by UUID, to which it lets the frameworks come; None where nothing limits them.

        CUDA's context comes to them.
        """
        limits = {} if self.releases else {str(device.gpu.uuid): device.limits for device in self.devices}
        most = self.most(limits, imported, promised=True)
        return {uuid: most.get(uuid) for uuid in dict.fromkeys([*(str(one.gpu.uuid) for one in self.devices), *most])}


def in_words(limits: Sequence[int], *, grows: bool, releases: bool = False) -> str:
    """Return what is taken of a GPU as a short text: ``limit 2 GiB``, ``split 2 × 1 GiB, grows``, ``growth``."""
    if not limits:
        if grows:
            return "growth, gives back" if releases else "growth"
        return "all that is free"
    if len(limits) == 1:
        return _growing(f"limit {rounded(limits[0])}", grows=grows)
    alike = len(set(limits)) == 1
    parts = f"{len(limits)} × {rounded(limits[0])}" if alike else " + ".join(map(rounded, limits))
    return _growing(f"split {parts}", grows=grows)


def _growing(words: str, *, grows: bool) -> str:
    return f"{words}, grows" if grows else words


def fraction_in(text: str) -> Decimal:
    """Return the fraction that a variable says; 1, which limits nothing, where it says none."""
    try:
        found = float(text)
    except ValueError:
        return Decimal(1)
    return Decimal(str(found)) if 0 <= found < 1 else Decimal(1)


def cuda_total(gpu: Gpu) -> int:
    """Return the bytes of a GPU as CUDA counts them, without what the driver keeps; 0 if they are unknown.

    It is more than `Gpu.capacity` in a cgroup below the one that the driver limits.
    """
    return 0 if gpu.total is None else gpu.total - (gpu.reserved or 0)


def _fraction(device: Device) -> Decimal:
    """Return the part of a GPU that its limits are, rounded down, whatever decimal context the program has.

    Raises:
        Refused: it is not known how much memory the GPU has.
    """
    total = cuda_total(device.gpu)
    if not total:
        raise Refused(
            msg(
                "GPU {gpu}: the driver does not tell how much memory it has, and only TensorFlow takes a limit that is "
                "no part of that. Limit TensorFlow alone, with its own magic, `tf_gpu`; or say `growth`.",
                gpu=device.gpu.label,
            )
        )
    return Decimal(10**_PLACES * min(sum(device.limits), total) // total).scaleb(-_PLACES, EXACT)


def _of(size: str, labels: Sequence[str]) -> str:
    return f"{size} of GPU {', '.join(labels)}"
