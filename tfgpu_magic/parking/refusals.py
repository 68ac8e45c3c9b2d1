"""Why a process is not parked, or does not come back: the table of reasons, each with its sentence.

`parking.answers` fills in the facts. Nothing has changed for the process, unless the reason says so.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Fact: TypeAlias = "str | int | float | tuple[Fact, ...] | None"
"""What a refusal tells. None is unknown; a size is in bytes, and its name ends in ``_bytes``."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A row of the table.

    Example:
        >>> OLD_DRIVER("570.86", "580").facts
        {'version': '570.86', 'least': '580'}
    """

    name: str  # what programs know it by
    sentence: str  # what is the matter and what to do, with the names of facts in braces

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of its facts, in their order."""
        return tuple(name for _, name, _, _ in string.Formatter().parse(self.sentence) if name)

    def __call__(self, *values: Fact) -> Refusal:
        """Return a refusal for this reason; the facts are those that its sentence names, in that order."""
        if len(values) != len(self.fields):
            raise TypeError(f"{self.name} has the facts {self.fields}, not {values}")
        return Refusal(self, values)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason with its facts."""

    reason: Reason
    values: tuple[Fact, ...] = ()  # in the order of the reason's `fields`

    @property
    def facts(self) -> dict[str, Fact]:
        """The facts by their names."""
        return dict(zip(self.reason.fields, self.values, strict=True))


# --- the machine ---

NO_DRIVER = Reason("no-driver", "The driver gives no figures: {error}")
OLD_DRIVER = Reason("old-driver", "The driver's version is {version}, and parking needs {least} or newer.")
OTHER_ARCHITECTURE = Reason("architecture", "The driver parks nothing on {architecture} processors.")
OPEN_MODULE = Reason(
    "open-module",
    "The open kernel module ({version}) is loaded, under which the end of a process that was parked once has stopped "
    "whole machines. A configuration file can allow it all the same, and no `%config` can: "
    "c.TfGpuMagics.parking_on_open_module = True.",
)
UNKNOWN_MODULE = Reason("unknown-module", "It is not known which kernel module of the driver is loaded.")
MIG_GPU = Reason("mig", "GPU {gpu} is divided by MIG, which the driver cannot park.")
UNIFIED_MEMORY = Reason("unified", "GPU {gpu} shares the machine's memory, so nothing would be gained.")
EXCLUSIVE = Reason(
    "exclusive",
    "The compute mode of GPU {gpu} is not the default, so that what takes the room for a return would keep the process "
    "off it. An administrator can change it: `nvidia-smi -c DEFAULT`.",
)

# --- the process ---

ENDED = Reason("ended", "There is no such process any more.")  # or another one has its pid now
HOLDS_NOTHING = Reason("holds-nothing", "It holds no GPU memory, so there is nothing to park.")
UNLISTED = Reason("unlisted", "The driver does not say what it holds of any GPU.")
HELD_UNKNOWN = Reason("held-unknown", "The driver does not say what it holds of GPU {gpu}.")
MANAGED_MEMORY = Reason(  # its checkpoint fails, and may cost the process its context
    "managed-memory", "It uses CUDA's managed memory, or may use it, which the driver cannot park."
)
NVML_UNLOADED = Reason(  # had it unloaded NVML without `nvmlShutdown`, this driver would end it
    "nvml",
    "This driver ({version}) ends a process in which NVML was loaded and unloaded badly, and here that cannot be ruled "
    "out. Restart, and turn parking on before anything uses the GPU.",
)
MPS = Reason("mps", "It uses the GPU through NVIDIA's MPS, or may, and nobody has seen such a process parked.")
SEVERAL_GPUS = Reason(
    "several-gpus",
    "It is on several GPUs, from which processes often do not come back. Restart, and let it see one: "
    "`%tf_gpu visible 0`.",
)
INTERCEPTED = Reason(
    "intercepted",
    "It has the driver's calls from elsewhere than the driver's own library ({files}), and nobody has seen such a "
    "process parked.",
)
CHILDREN = Reason(  # or it is not known whether they have the driver open
    "children", "It has child processes that use the GPU or may ({pids}), which would stay there: end them first."
)
HOST_MEMORY = Reason(
    "host-memory",
    "Host memory must take {needed_bytes}; what parking may fill of it: {left_bytes} (`tfgpu doctor` says why).",
)
USERS_MEMORY = Reason(
    "users-memory",
    "Your parked processes may fill {most_bytes} of host memory together, an administrator says, and {others_bytes} "
    "are filled: bring one back first.",
)
NO_WAY_BACK = Reason(  # with the margin, and room for the placeholder's own context
    "no-way-back",
    "A process that holds so much of GPU {gpu} could not surely come back: that needs {needed_bytes} (free without "
    "your processes: {free_bytes}). With less memory (`%tf_gpu limit`, `growth`) it can be parked.",
)
NO_DISK = Reason(
    "no-disk",
    "No disk is there for it: an administrator names a directory and how much each user may fill, as in "
    'c.TfGpuMagics.parking_disk = "500GiB in /scratch".',
)
OLD_FOR_DISK = Reason("old-for-disk", "The driver's version is {version}, and to disk it parks from {least} on.")
DISK_UNUSABLE = Reason("disk-unusable", "Nothing can be written to {directory}: {error}.")
DISK_ROOM = Reason("disk-room", "On disk it needs {needed_bytes}; what parking may fill in {directory}: {left_bytes}.")
MORE_NEEDED = Reason(  # it is parked all the same, unless nobody is there who asks for it
    "more-needed", "By today's figures it comes back only when {more_bytes} more of GPU {gpu} are free."
)

# --- what the process says of itself ---

NOT_ASKED = Reason("not-asked", "Nobody inside it says that it is idle: park it from its own notebook.")
OFF = Reason(
    "off",
    "Parking is off: its way back was tried on a simulated driver only, so nobody knows what a real one makes of the "
    'work. `%config TfGpuMagics.parking = "ask"` in its notebook turns it on.',
)
BUSY = Reason("busy", "A cell runs there: it is parked between cells only.")
RETURNS = Reason("returns", "It is on its way back to the GPU: say it again when it is there.")
THREADS = Reason(
    "threads", "These threads, tasks or callbacks may use the GPU while it is parked: {names}. Stop them first."
)
NCCL = Reason(
    "nccl", "NCCL has started in it, as several GPUs under one strategy need it; drivers park it badly or not."
)
SHARED_MEMORY = Reason(
    "shared-memory",
    "It shares GPU memory with another process, which drivers before 610 do not survive, and newer ones are not "
    "trusted with.",
)
PROFILED = Reason(
    "profiled", "A profiler has run in it, which drivers do not park with certainty. Restart, and do not profile."
)
PREFETCHES = Reason(
    "prefetches",
    "A tf.data pipeline there prefetches to the GPU, and may use it at any time. Delete its iterator first (`del` and "
    "its name).",
)

# --- the attempt ---

ELSEWHERE = Reason(
    "elsewhere", "Something else has locked it, or has moved its state away; whoever did has to bring it back."
)
UNANSWERED = Reason(
    "unanswered", "The driver has not answered ({call}). What becomes of it is found out, and it is set right."
)
STILL_WORKING = Reason(
    "still-working",
    "What it has given the GPU to do did not end within {seconds} s. It goes on as before; say it again.",
)
FAILED = Reason("failed", "What it has given the GPU to do has ended in an error: {error}")
DECLINED = Reason("declined", "The driver has declined it ({call}: {code}).")
DISK_FAILED = Reason(
    "disk-failed", "The file on disk cannot be written or read ({error}). Nothing is lost, and it is as it was before."
)
NOT_GIVEN = Reason(  # it is tried again
    "not-given", "There is room by the driver's figures, but it does not give it ({call}: {code})."
)
LOST = Reason(
    "lost",
    "Its GPU state cannot be had back: the driver found too little room on the way. Run cells again to save what is in "
    "host memory, then restart it, which frees what it still holds.",
)
WITHOUT_GPU = Reason(
    "without-gpu", "It goes on without its GPU memory, which is parked: `%tf_gpu unpark` tries to bring that back."
)
ERROR = Reason("error", "{error}")
CANCELLED = Reason("cancelled", "It was called off.")

REASONS = {one.name: one for one in tuple(globals().values()) if isinstance(one, Reason)}  # all of them, by name


def to_json(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal as what JSON can hold."""
    return {"refusal": refusal.reason.name, "values": refusal.values}


def from_json(fields: Mapping[str, Any]) -> Refusal:
    """Make a refusal of what `to_json` returned; what is none is a `ValueError`."""
    try:
        values = (tuple(value) if isinstance(value, list) else value for value in fields["values"])
        return REASONS[fields["refusal"]](*values)
    except (TypeError, KeyError) as error:
        raise ValueError(f"not a refusal: {error}") from error
