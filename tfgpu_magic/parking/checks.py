"""Decides whether a process may be parked, from facts that others have read: every reason why not, at once. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgpu_magic.parking import refusals as why
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.units import BINARY, MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfgpu_magic.model.report import HeldMemory
    from tfgpu_magic.model.snapshot import Gpu
    from tfgpu_magic.parking.refusals import Refusal

LEAST_DRIVER = 580
"""The first branch of the driver that NVIDIA's own snapshot tools ask for; the calls are there from 570 on."""

NVML_MINDED_FROM = 610
"""The first branch on which a lock ends a process in which NVML was unloaded without `nvmlShutdown`."""

LEAST_FOR_DISK = 615
"""The first branch in which the caller may keep what is checkpointed."""

ARCHITECTURES = ("x86_64",)
"""The processors for which it was seen to work."""

ROOM_MARGIN = 256 * MIB
"""Bytes of a GPU that must be free beside what comes back: a restore that finds too little fails for good."""

HOST_MARGIN = 4 * BINARY["GiB"]
"""Bytes of the machine's memory that must be left for others, or a tenth of it where that is more: what fills a host
ends its largest process, which is what was just parked."""
CGROUP_MARGIN = BINARY["GiB"]
"""Bytes that a cgroup must still allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What only the process itself can say, and has to.

    Attributes:
        against: why it may not be parked, on whatever machine.
        nvml: whether NVML is kept loaded, and was never unloaded without its end.
        libraries: the files from which it may have the driver's calls; none in a process without CUDA.
    """

    against: tuple[Refusal, ...] = ()
    nvml: bool = True
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkFacts:
    """What is known of a process and its machine.

    Attributes:
        error: why the driver gives no figures; None where it does.
        driver: the driver's version; None where it is unknown.
        open_module: whether the open kernel module is loaded; None where that is unknown.
        allow_open_module: whether the administrator allows it there.
        architecture: as `platform.machine` names it.
        gpus: the GPUs that the process is on; what this user's processes hold of them, who can give it back, is free.
        free: bytes that are free of each of these now.
        held: what it holds of each of these, in their order; None where the driver does not say.
        unlisted: whether it may hold memory though it is on none of these: the driver lists pids of another namespace.
        mappings: how often it has mapped the file of managed memory; None where that cannot be read.
        mps: whether the driver lists it as a client of MPS.
        children: pids of its descendants that have the driver open, or of which it is not known.
        host: bytes of host memory that it may still fill, without what must be left; None where that is unknown.
        most: bytes of it that all of this user's parked processes may fill; None where there is no such limit.
        others: bytes of it that this user's other processes fill that are parked.
        disk: the directory on disk where it is to be parked and the bytes that may be filled there, or why it cannot be
            used; None is in host memory.
        inside: what it says of itself.
    """

    error: str | None = None
    driver: str | None
    open_module: bool | None
    allow_open_module: bool = False
    architecture: str
    gpus: tuple[Gpu, ...] = ()
    free: tuple[int | None, ...] = ()
    held: tuple[HeldMemory | None, ...] = ()
    unlisted: bool = False
    mappings: int | None = 1
    mps: bool = False
    children: tuple[int, ...] = ()
    host: int | None
    most: int | None = None
    others: int = 0
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
    found = [refusal for check in _CHECKS for refusal in check(facts)]
    return tuple(dict.fromkeys([*found, *facts.inside.against]))


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


def _branch(facts: ParkFacts) -> int:
    found = re.match(r"\d+", facts.driver or "")
    return 0 if found is None else int(found[0])


def _driver(facts: ParkFacts) -> Iterator[Refusal]:
    if facts.error is not None:
        yield why.NO_DRIVER(facts.error)
        return
    version, branch = facts.driver or "", _branch(facts)
    if branch < LEAST_DRIVER:
        yield why.OLD_DRIVER(version, str(LEAST_DRIVER))
    if branch >= NVML_MINDED_FROM and not facts.inside.nvml:
        yield why.NVML_UNLOADED(version)
    if facts.open_module is None:
        yield why.UNKNOWN_MODULE()
    elif facts.open_module and not facts.allow_open_module:
        yield why.OPEN_MODULE(version)


def _machine(facts: ParkFacts) -> Iterator[Refusal]:
    if facts.architecture not in ARCHITECTURES:
        yield why.OTHER_ARCHITECTURE(facts.architecture)
    for gpu in facts.gpus:
        if gpu.mig or gpu.instance is not None:
            yield why.MIG_GPU(gpu.label)
        if gpu.unified:
            yield why.UNIFIED_MEMORY(gpu.label)
        if gpu.exclusive:  # what takes the room for its return has a context of its own there
            yield why.EXCLUSIVE(gpu.label)


def _held(facts: ParkFacts) -> Iterator[Refusal]:
    if facts.error is not None:
        return
    if not facts.held:
        yield why.UNLISTED() if facts.unlisted else why.HOLDS_NOTHING()
    for gpu, held in zip(facts.gpus, facts.held, strict=True):
        if held is None:
            yield why.HELD_UNKNOWN(gpu.label)
            continue
        yield from no_way_back(gpu, held.size)


def _process(facts: ParkFacts) -> Iterator[Refusal]:
    if facts.mappings is None or facts.mappings > 1:
        yield why.MANAGED_MEMORY()
    if facts.children:
        yield why.CHILDREN(facts.children)
    if facts.mps:
        yield why.MPS()
    if len(facts.held) > 1:
        yield why.SEVERAL_GPUS()
    files = facts.inside.libraries
    if len(files) > 1 or any(_other_version(file, facts.driver or "") for file in files):
        yield why.INTERCEPTED(files)


def _host(facts: ParkFacts) -> Iterator[Refusal]:
    if facts.disk is not None:
        if _branch(facts) < LEAST_FOR_DISK:
            yield why.OLD_FOR_DISK(facts.driver or "", str(LEAST_FOR_DISK))
        if isinstance(facts.disk, why.Refusal):
            yield facts.disk
        elif facts.disk[1] < facts.size:
            yield why.DISK_ROOM(facts.size, *facts.disk)
        return
    if facts.host is None or facts.host < facts.size:
        yield why.HOST_MEMORY(facts.size, facts.host)
    if facts.most is not None and facts.most < facts.others + facts.size:
        yield why.USERS_MEMORY(facts.most, facts.others)


def _other_version(file: str, driver: str) -> bool:
    """Tell whether a file is libcuda of another version than the driver's, or another library."""
    name = re.fullmatch(r"libcuda\.so\.(\d+(?:\.\d+)*)", file.rpartition("/")[2])
    return name is None or ("." in name[1] and name[1] != driver)


_CHECKS: Sequence[Callable[[ParkFacts], Iterator[Refusal]]] = (_driver, _machine, _held, _process, _host)
