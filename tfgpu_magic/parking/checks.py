"""Decides whether a process may be parked, from facts that others have read: every reason why not, at once. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgpu_magic.parking import refusals as why
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfgpu_magic.model.report import HeldMemory
    from tfgpu_magic.model.snapshot import Gpu
    from tfgpu_magic.parking.refusals import Refusal

LEAST_DRIVER = 580
"""The first branch of the driver that NVIDIA's own snapshot tools ask for; the calls are there from 570 on."""

NVML_MINDED_FROM = 610
"""The first branch on which a lock ends a process in which NVML was unloaded without `nvmlShutdown`."""

ARCHITECTURES = ("x86_64",)
"""The processors for which it was seen to work."""

ROOM_MARGIN = 256 * MIB
"""Bytes of a GPU that must be free beside what comes back: a restore that finds too little fails for good."""

HOST_MARGIN = 1024 * MIB
"""Bytes of the host's memory that must be left beside what goes there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What only the process itself can say, and has to.

    Attributes:
        busy: whether a cell runs.
        threads: the names of threads that may call CUDA at any time.
        nccl: whether NCCL has started.
        shared: whether GPU memory is shared with another process.
    """

    busy: bool = False
    threads: tuple[str, ...] = ()
    nccl: bool = False
    shared: bool = False


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
        held: what it holds of each of these, in their order; None where the driver does not say.
        unlisted: whether it may hold memory though it is on none of these: the driver lists pids of another namespace.
        alive: whether there is such a process, with the start that was named.
        own: whether it is this user's.
        stopped: whether a signal or a debugger has stopped it.
        mappings: how often it has mapped the file of managed memory; None where that cannot be read.
        nvml: whether it has NVML's library loaded; None where that cannot be read.
        children: pids of its descendants that have the driver open, or of which it is not known.
        host: bytes of host memory that it may still fill; None where that is unknown.
        inside: what it says of itself; None where it says nothing.
    """

    error: str | None = None
    driver: str | None
    open_module: bool | None
    allow_open_module: bool = False
    architecture: str
    gpus: tuple[Gpu, ...] = ()
    held: tuple[HeldMemory | None, ...] = ()
    unlisted: bool = False
    alive: bool = True
    own: bool = True
    stopped: bool = False
    mappings: int | None = 1
    nvml: bool | None = True
    children: tuple[int, ...] = ()
    host: int | None
    inside: Inside | None

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
    if not facts.alive:
        return (why.ENDED(),)
    if not facts.own:  # nothing else is told of another user's process
        return (why.NOT_YOURS(),)
    return tuple(refusal for check in _CHECKS for refusal in check(facts))


def placeholder(size: int) -> int:
    """Return the bytes of a GPU that must be taken before so many bytes are brought back."""
    return size + ROOM_MARGIN


def needed(size: int, gpu: Gpu) -> int:
    """Return the bytes that must be free for that: the placeholder has a context of its own beside it."""
    return placeholder(size) + context_bytes(gpu.total or 0)


def no_way_back(gpu: Gpu, size: int) -> Iterator[Refusal]:
    """Return why so many bytes of a GPU could not come back; its `free` is as in `ParkFacts`."""
    room, wanted = gpu.usable, needed(size, gpu)
    if room is not None and gpu.free is not None:
        room = min(room, gpu.free)
    if room is None or wanted > room:
        yield why.NO_WAY_BACK(gpu.label, wanted, room)


def _driver(facts: ParkFacts) -> Iterator[Refusal]:
    if facts.error is not None:
        yield why.NO_DRIVER(facts.error)
        return
    version = facts.driver or ""
    found = re.match(r"\d+", version)
    branch = 0 if found is None else int(found[0])
    if branch < LEAST_DRIVER:
        yield why.OLD_DRIVER(version, str(LEAST_DRIVER))
    if branch >= NVML_MINDED_FROM and not facts.nvml:  # it may never have loaded it: that cannot be told
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
    if facts.stopped:
        yield why.STOPPED()
    if facts.mappings is None or facts.mappings > 1:
        yield why.MANAGED_MEMORY()
    if facts.children:
        yield why.CHILDREN(facts.children)


def _host(facts: ParkFacts) -> Iterator[Refusal]:
    wanted = facts.size + HOST_MARGIN
    if facts.host is None or facts.host < wanted:
        yield why.HOST_MEMORY(wanted, facts.host)


def _inside(facts: ParkFacts) -> Iterator[Refusal]:
    if facts.inside is None:
        yield why.NOT_ASKED()
        return
    if facts.inside.busy:
        yield why.BUSY()
    if facts.inside.threads:
        yield why.THREADS(facts.inside.threads)
    if facts.inside.nccl:
        yield why.NCCL()
    if facts.inside.shared:
        yield why.SHARED_MEMORY()


_CHECKS: Sequence[Callable[[ParkFacts], Iterator[Refusal]]] = (_driver, _machine, _held, _process, _inside, _host)
