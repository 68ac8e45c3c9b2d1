"""What a policy means for a framework beside TensorFlow, as data that `frameworks` makes and a `Plan` carries. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from tfgpu_magic.errors import Refused
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.memory import EXACT

_PLACES = 6
"""The places of a fraction: of a GPU of 100 GiB, the last is a tenth of a MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkRequest:
    """What is asked of every framework beside TensorFlow.

    Attributes:
        devices: the GPUs that CUDA will show, each with its limits in bytes; one without limits is not limited.
        grows: whether memory is to be taken as it is needed; None where nothing was asked about memory.
        asked: whether a user asks for it now, so that what cannot be had is refused. What was asked before, and what an
            administrator asks, holds as far as it can.
    """

    devices: tuple[Device, ...] = ()
    grows: bool | None = None
    asked: bool = True

    @property
    def limits(self) -> dict[str, int]:
        """The bytes that the framework may take of each GPU, by UUID; without the GPUs that are not limited."""
        return {str(device.gpu.uuid): sum(device.limits) for device in self.devices if device.limits}

    @property
    def ceilings(self) -> frozenset[str]:
        """The UUIDs of the GPUs on which only the ceiling holds: there a lower fraction of the user's own stays."""
        return frozenset(str(device.gpu.uuid) for device in self.devices if device.capped)

    @property
    def fractions(self) -> dict[str, Decimal]:
        """The same as fractions of what CUDA counts as the GPU's memory.

        Raises:
            Refused: that is unknown.
        """
        return {str(device.gpu.uuid): _fraction(device) for device in self.devices if device.limits}

    def within(self, own: Decimal) -> FrameworkRequest:
        """Return the same beside a user's own fraction of all GPUs: a ceiling lowers that, and never raises it."""
        return replace(self, devices=tuple(self._within(own, device) for device in self.devices))

    def _within(self, own: Decimal, device: Device) -> Device:
        if not device.capped:
            return device
        most = math.ceil(EXACT.multiply(own, cuda_total(device.gpu)))
        return device._replace(limits=(min(most, sum(device.limits)),))

    def lowered(self, framework: str) -> list[Message]:
        """Return a note on the GPUs of which a framework takes less, as it has one fraction for all: the smallest.

        Args:
            framework: the framework's name.
        """
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
                framework=framework,
                most=most,
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkState:
    """A framework in this process.

    Attributes:
        environment: the environment without our changes.
        version: the version that is installed or imported; empty if it is not known.
        held: bytes that it has taken of each GPU, by UUID.
        allocator: the name of its allocator, of one that tells it: ``pluggable``.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    version: tuple[int, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    allocator: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkPlan:
    """What is done about one framework.

    Attributes:
        framework: its name for people.
        environment: the variables that say it; None removes one.
        limits: bytes that it may take of each GPU, by UUID; without the GPUs on which it is not limited.
        fractions: the same as fractions of the GPU's memory, before a lower one of the user's own counts.
        gpus: the UUIDs of the GPUs that it was made for; of any other, the framework may take the smallest fraction.
        ceilings: the UUIDs of the GPUs on which that is looked for when the framework is told.
        takes: what it takes, as a phrase: ``up to 4 GiB, as it needs it``; empty where nothing was asked of it.
        notes: what else the user should know.
        unmet: why it is not held to all that holds for the process; None where it is.
    """

    framework: str
    environment: Mapping[str, str | None] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    fractions: Mapping[str, Decimal] = field(default_factory=dict)
    gpus: frozenset[str] = frozenset()
    ceilings: frozenset[str] = frozenset()
    takes: str = ""
    notes: Sequence[Message] = ()
    unmet: Message | None = None

    @property
    def told(self) -> Message | None:
        """What it takes, as a sentence; None where nothing was asked of it."""
        return msg("{name} takes {takes}.", name=self.framework, takes=self.takes) if self.takes else None

    @property
    def _told(self) -> tuple[object, ...]:
        return self.environment, self.fractions, self.gpus, self.ceilings

    def asks_the_same(self, other: FrameworkPlan | None) -> bool:
        """Tell whether both tell the framework the same; None tells it nothing."""
        return self._told == (other or FrameworkPlan(framework=self.framework))._told

    def is_within(self, other: FrameworkPlan) -> bool:
        """Tell whether it lets the framework take no more of any GPU than another plan does."""
        return all(self.fractions.get(uuid, Decimal(1)) <= most for uuid, most in other.fractions.items())


def fraction_in(text: str) -> Decimal:
    """Return the fraction that a variable says; 1, which limits nothing, where it says none."""
    try:
        found = float(text)
    except ValueError:
        return Decimal(1)
    return Decimal(str(found)) if 0 <= found < 1 else Decimal(1)


def cuda_total(gpu: Gpu) -> int:
    """Return the bytes of a GPU as CUDA counts them, without what the driver keeps; 0 if they are unknown.

    It is more than `Gpu.most` in a cgroup below the one that the driver limits.
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


def phrase(wanted: FrameworkRequest, *, grows: bool) -> str:
    """Return what a framework takes of each GPU as a phrase: ``4 GiB of GPU 0, 1``; empty where nothing was asked."""
    alike: dict[str, list[str]] = {}
    for device in wanted.devices:
        if device.limits:
            alike.setdefault(rounded(sum(device.limits)), []).append(device.gpu.label)
    sizes = ", ".join(itertools.starmap(_of, alike.items()))
    if sizes:
        return f"up to {sizes}, as it needs it" if grows else sizes
    return "what it needs, as it needs it" if grows and wanted.grows is not None else ""


def _of(size: str, labels: Sequence[str]) -> str:
    return f"{size} of GPU {', '.join(labels)}"
