"""Decides whether a process may be parked, from facts that others have read: every reason why not, at once. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.model.snapshot import Gpu
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.refusals import Refusal
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.units import BINARY, MIB

LEAST_DRIVER = 580
"""The first branch of the driver that NVIDIA's own snapshot tools ask for; the calls are there from 570 on."""
NVML_MINDED_FROM = 610
"""The first branch on which a lock ends a process in which NVML was unloaded without `nvmlShutdown`."""
LEAST_FOR_DISK = 615  # the first branch in which the caller may keep what is checkpointed
ARCHITECTURES = ("x86_64",)  # the processors for which it was seen to work
ROOM_MARGIN = 256 * MIB
"""Bytes of a GPU that must be free beside what comes back: a restore that finds too little fails for good."""
HOST_MARGIN = 4 * BINARY["GiB"]
"""Bytes of the machine's memory that must be left for others, or a tenth of it where that is more: what fills a host
ends its largest process, which is what was just parked."""
CGROUP_MARGIN = BINARY["GiB"]  # bytes that a cgroup must still allow


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What only the process itself can say, and has to."""

    against: tuple[Refusal, ...] = ()  # why it may not be parked, on whatever machine
    nvml: bool = True  # whether NVML is kept loaded, and was never unloaded without its end
    libraries: tuple[str, ...] = ()  # the files from which it may have the driver's calls; none in one without CUDA
    allow_open_module: bool = False  # whether its configuration allows it under the open kernel module


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkFacts:
    """What is known of a process and its machine; None is unknown, and sizes are in bytes."""

    error: str | None = None  # why the driver gives no figures; None where it does
    driver: str | None  # its version
    open_module: bool | None  # whether the open kernel module is loaded
    architecture: str  # as `platform.machine` names it
    gpus: tuple[Gpu, ...] = ()  # on which the process is; what this user's processes hold of them is `free` there
    free: tuple[int | None, ...] = ()  # what is free of each of these now
    held: tuple[HeldMemory | None, ...] = ()  # what it holds of each of these
    unlisted: bool = False  # whether it may hold memory of others: the driver lists pids of another namespace
    mappings: int | None = 1  # how often it has mapped the file of managed memory
    mps: bool = False  # whether the driver lists it as a client of MPS
    children: tuple[int, ...] = ()  # its descendants that have the driver open, or of which that is not known
    host: int | None  # what it may still fill of host memory, without what must be left
    most: int | None = None  # what all of this user's parked processes may fill of it; None is no such limit
    others: int = 0  # what this user's other processes fill of it that are parked
    # Where on disk it is to be parked and what may be filled there, or why it cannot be used; None is in host memory.
    disk: tuple[str, int] | Refusal | None = None
    inside: Inside

    @property
    def known(self) -> tuple[HeldMemory, ...]:
        """What the process holds, as far as it is known."""
        return tuple(held for held in self.held if held is not None)

    @property
    def size(self) -> int:
        """The bytes of that."""
        return sum(held.size for held in self.known)


def refusals(facts: ParkFacts) -> tuple[Refusal, ...]:
    """Return every reason why a process is not to be parked; none means that it may be."""
    if facts.error is not None:
        return (why.NO_DRIVER(facts.error), *facts.inside.against)
    version, files = facts.driver or "", facts.inside.libraries
    found = re.match(r"\d+", version)
    branch = 0 if found is None else int(found[0])
    here = tuple(zip(facts.gpus, facts.held, strict=True))
    against = {
        why.OLD_DRIVER(version, str(LEAST_DRIVER)): branch < LEAST_DRIVER,
        why.NVML_UNLOADED(version): branch >= NVML_MINDED_FROM and not facts.inside.nvml,
        why.UNKNOWN_MODULE(): facts.open_module is None,
        why.OPEN_MODULE(version): facts.open_module and not facts.inside.allow_open_module,
        why.OTHER_ARCHITECTURE(facts.architecture): facts.architecture not in ARCHITECTURES,
        **{why.MIG_GPU(gpu.label): gpu.mig or gpu.instance is not None for gpu in facts.gpus},
        **{why.UNIFIED_MEMORY(gpu.label): gpu.unified for gpu in facts.gpus},
        **{why.EXCLUSIVE(gpu.label): gpu.exclusive for gpu in facts.gpus},
        why.UNLISTED(): not here and facts.unlisted,
        why.HOLDS_NOTHING(): not here and not facts.unlisted,
        **{why.HELD_UNKNOWN(gpu.label): held is None for gpu, held in here},
        **{one: True for gpu, held in here if held is not None for one in no_way_back(gpu, held.size)},
        why.MANAGED_MEMORY(): facts.mappings is None or facts.mappings > 1,
        why.CHILDREN(facts.children): facts.children,
        why.MPS(): facts.mps,
        why.SEVERAL_GPUS(): len(here) > 1,
        why.INTERCEPTED(files): len(files) > 1 or any(_other_version(file, version) for file in files),
        **(_of_host(facts) if facts.disk is None else _of_disk(facts.disk, facts.size, branch, version)),
    }
    return tuple(dict.fromkeys([*(reason for reason, holds in against.items() if holds), *facts.inside.against]))


def _of_host(facts: ParkFacts) -> dict[Refusal, bool]:
    most, others = facts.most, facts.others
    return {
        why.HOST_MEMORY(facts.size, facts.host): facts.host is None or facts.host < facts.size,
        why.USERS_MEMORY(most, others): most is not None and most < others + facts.size,
    }


def _of_disk(disk: tuple[str, int] | Refusal, size: int, branch: int, version: str) -> dict[Refusal, bool]:
    old = {why.OLD_FOR_DISK(version, str(LEAST_FOR_DISK)): branch < LEAST_FOR_DISK}
    return old | ({disk: True} if isinstance(disk, why.Refusal) else {why.DISK_ROOM(size, *disk): disk[1] < size})


def placeholder(size: int) -> int:
    """Return the bytes of a GPU that must be taken before so many bytes are brought back."""
    return size + ROOM_MARGIN


def needed(size: int, gpu: Gpu) -> int:
    """Return the bytes that must be free for that: the placeholder has a context of its own beside it."""
    return placeholder(size) + context_bytes(gpu.total or 0)


def host_margin(total: int) -> int:
    """Return the bytes that must be left of a machine's memory, which is so large."""
    return max(HOST_MARGIN, total // 10)


def no_way_back(gpu: Gpu, size: int) -> Iterator[Refusal]:
    """Return why so many bytes of a GPU could not come back; its `free` is as in `ParkFacts`."""
    room, wanted = gpu.usable, needed(size, gpu)
    if room is not None and gpu.free is not None:
        room = min(room, gpu.free)
    if room is None or wanted > room:
        yield why.NO_WAY_BACK(gpu.label, wanted, room)


def shortages(facts: ParkFacts) -> tuple[Refusal, ...]:
    """Return what is missing of each GPU by today's figures for a process to come back that is parked now.

    What this user's other processes hold can be given back, so that is no reason not to park; but it is said.
    """
    found = []
    for gpu, free, held in zip(facts.gpus, facts.free, facts.held, strict=True):
        if held is not None and free is not None and (more := needed(held.size, gpu) - free - held.size) > 0:
            found.append(why.MORE_NEEDED(gpu.label, more))
    return tuple(found)


def _other_version(file: str, driver: str) -> bool:
    """Tell whether a file is libcuda of another version than the driver's, or another library."""
    name = re.fullmatch(r"libcuda\.so\.(\d+(?:\.\d+)*)", file.rpartition("/")[2])
    return name is None or ("." in name[1] and name[1] != driver)
