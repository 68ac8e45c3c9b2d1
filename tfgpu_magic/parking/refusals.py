"""Why a process is not parked, or does not come back: a class for each reason, with its facts. Views make sentences."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason; nothing has changed for the process, unless the reason says so."""


# --- the machine ---


@dataclass(frozen=True, slots=True)
class NoDriver(Refusal):
    """There is no driver, or it does not answer.

    Attributes:
        error: what the driver's look says.
    """

    error: str


@dataclass(frozen=True, slots=True)
class OldDriver(Refusal):
    """The driver is older than the first that is trusted with this.

    Attributes:
        version: the driver's version; empty where it is unknown.
        least: the first version that will do.
    """

    version: str
    least: str


@dataclass(frozen=True, slots=True)
class OtherArchitecture(Refusal):
    """The driver does not offer it for this processor.

    Attributes:
        architecture: as `platform.machine` names it.
    """

    architecture: str


@dataclass(frozen=True, slots=True)
class OpenModule(Refusal):
    """The open kernel module is loaded, under which the end of a process that was restored has stopped whole hosts.

    Attributes:
        version: the module's version.
    """

    version: str


@dataclass(frozen=True, slots=True)
class UnknownModule(Refusal):
    """It is not known which kernel module is loaded."""


@dataclass(frozen=True, slots=True)
class MigGpu(Refusal):
    """The process is on a part of a GPU, which the driver cannot do.

    Attributes:
        gpu: the label of the GPU or of its part.
    """

    gpu: str


@dataclass(frozen=True, slots=True)
class UnifiedMemory(Refusal):
    """The GPU shares the machine's memory, so nothing would be gained, and the driver cannot do it.

    Attributes:
        gpu: the GPU's label.
    """

    gpu: str


# --- the process ---


@dataclass(frozen=True, slots=True)
class Ended(Refusal):
    """There is no such process, or another one has its pid now."""


@dataclass(frozen=True, slots=True)
class NotYours(Refusal):
    """The process is another user's."""


@dataclass(frozen=True, slots=True)
class Stopped(Refusal):
    """The process is stopped, by a signal or a debugger: driver calls for it would never return."""


@dataclass(frozen=True, slots=True)
class HoldsNothing(Refusal):
    """The process holds no GPU memory by the driver's account."""


@dataclass(frozen=True, slots=True)
class HeldUnknown(Refusal):
    """The driver does not say what the process holds.

    Attributes:
        gpu: the GPU's label; empty where none is listed.
    """

    gpu: str


@dataclass(frozen=True, slots=True)
class ManagedMemory(Refusal):
    """The process uses managed memory, whose checkpoint fails and may cost the process its context.

    Attributes:
        mappings: how often it has mapped the driver's file for that; None where that cannot be read.
    """

    mappings: int | None


@dataclass(frozen=True, slots=True)
class NvmlUnloaded(Refusal):
    """The process has not loaded NVML now: had it unloaded it without `nvmlShutdown`, this driver would end it.

    Attributes:
        version: the driver's version.
    """

    version: str


@dataclass(frozen=True, slots=True)
class Children(Refusal):
    """Children of the process have the driver open: they would stay on the GPU, or hang.

    Attributes:
        pids: those children, and those of which it is not known.
    """

    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HostMemory(Refusal):
    """The host, or the cgroup of the process, has no room for what it holds.

    Attributes:
        needed: bytes, with the margin.
        left: bytes that are left; None where that is unknown.
    """

    needed: int
    left: int | None


@dataclass(frozen=True, slots=True)
class NoWayBack(Refusal):
    """It holds so much of the GPU that its return could never be made sure of.

    Attributes:
        gpu: the GPU's label.
        needed: bytes that its return needs, with the margin and the room of the placeholder's own context.
        usable: bytes that processes can have of the GPU; None where that is unknown.
    """

    gpu: str
    needed: int
    usable: int | None


# --- what the process says of itself ---


@dataclass(frozen=True, slots=True)
class NotAsked(Refusal):
    """Nobody inside the process says that nothing of it runs in CUDA."""


@dataclass(frozen=True, slots=True)
class Off(Refusal):
    """Its notebook does not let itself be parked (``TfGpuMagics.parking``)."""


@dataclass(frozen=True, slots=True)
class Busy(Refusal):
    """A cell runs."""


@dataclass(frozen=True, slots=True)
class Threads(Refusal):
    """Threads of the process may call CUDA at any time.

    Attributes:
        names: their names.
    """

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nccl(Refusal):
    """NCCL has started in the process."""


@dataclass(frozen=True, slots=True)
class SharedMemory(Refusal):
    """The process shares GPU memory with another one."""


# --- the attempt ---


@dataclass(frozen=True, slots=True)
class Elsewhere(Refusal):
    """Something else has locked the process, or has moved its state away: it is not ours to touch.

    Attributes:
        state: the driver's number of its state.
    """

    state: int


@dataclass(frozen=True, slots=True)
class Unanswered(Refusal):
    """The driver has not answered in time. What becomes of the process is found out, and it is set right.

    Attributes:
        call: the driver's call.
        seconds: how long was waited.
    """

    call: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StillWorking(Refusal):
    """What the process has given to the GPU did not end in time; it goes on.

    Attributes:
        seconds: how long was waited.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Failed(Refusal):
    """What the process has given to the GPU has ended in an error, which its user is yet to see.

    Attributes:
        error: the error's text.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Declined(Refusal):
    """The driver has declined a call; where the process does not go on as before, another reason says so.

    Attributes:
        call: the driver's call.
        code: its number of the error.
    """

    call: str
    code: int


@dataclass(frozen=True, slots=True)
class NotGiven(Refusal):
    """The driver has declined to give room that is free by its figures; it is tried again.

    Attributes:
        call: the driver's call.
        code: its number of the error.
    """

    call: str
    code: int


@dataclass(frozen=True, slots=True)
class Lost(Refusal):
    """The GPU state of the process cannot be had back. Only its end frees what it holds."""


@dataclass(frozen=True, slots=True)
class NotParked(Refusal):
    """Nothing is known of the process having been parked, so what it needs to come back is not known either."""


@dataclass(frozen=True, slots=True)
class Unrecorded(Refusal):
    """What is parked cannot be written down, and without that nothing is begun.

    Attributes:
        error: why.
    """

    error: str


@dataclass(frozen=True, slots=True)
class NoHelper(Refusal):
    """The process that parks others cannot be asked.

    Attributes:
        error: why.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Cancelled(Refusal):
    """It was called off in time; the process is as before."""


_CLASSES = {one.__name__: one for one in Refusal.__subclasses__()}


def to_json(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal as what JSON can hold."""
    return {"refusal": type(refusal).__name__, **dataclasses.asdict(refusal)}


def from_json(fields: Mapping[str, Any]) -> Refusal:
    """Make a refusal of what `to_json` returned.

    Raises:
        ValueError: it is none.
    """
    rest = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    try:
        return _CLASSES[str(rest.pop("refusal"))](**rest)
    except (TypeError, KeyError) as error:
        raise ValueError(f"not a refusal: {error}") from error
