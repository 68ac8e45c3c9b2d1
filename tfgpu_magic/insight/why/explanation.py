"""Why a GPU ran out of memory, as plain data without an object of the user's, and what causes follow from it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.units import MIB

if TYPE_CHECKING:
    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.frameworks.shortage import Shortage
    from tfgpu_magic.ground.message import Line, Message
    from tfgpu_magic.ground.process_kind import ProcessKind
    from tfgpu_magic.ground.rows import ProcessRow
    from tfgpu_magic.ground.snapshot import Gpu
    from tfgpu_magic.insight.objects.names import NamedMemory

Cause: TypeAlias = Literal["start", "size", "limit", "pool", "gpu", "pieces", "library", "unknown"]
"""Why there was no memory.

- ``start``: the GPU had no room for what a framework needs to start.
- ``size``: more was asked for than the GPU has.
- ``limit``: a setting limits the pool; ``pool``: what was free when the framework started does.
- ``gpu``: the pool might grow, and the GPU has no memory left.
- ``pieces``: enough of the pool is free, and not in one piece.
- ``library``: one of CUDA's libraries found no room beside the pool.
"""

LIBRARY_ROOM = 512 * MIB
"""Bytes that CUDA's libraries may want beside a pool when they start: if more is free, they failed for another
reason."""

_LONGEST = 40  # characters of a name


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that would help.

    Attributes:
        kind: what is done: delete what IPython or a name keeps; run the cell in a process of its own; set it in a new
            kernel; shut down another notebook; ask for less; limit the notebook's own worker processes. ``other`` is
            not checked with the GPUs as they are: try again, or wait, until others give memory back; see what holds it.
        rows: lines to paste, of a magic or of Python, each with what is to be known of it; a message alone has None.
        words: the words of its line, a policy's as a rule; empty if there is none.
        size: the bytes that a deletion frees.
    """

    kind: Literal["free", "isolate", "restart", "shut", "smaller", "workers", "other"]
    rows: tuple[tuple[Line | Message | None, Message], ...]
    words: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a GPU ran out of memory. Sizes are bytes.

    Attributes:
        time: when, in seconds since the epoch.
        cell: the cell's number; None if it was no cell, or that is not known.
        shortage: what the error says.
        cause: why there was none.
        pool: the pool that had none; None if that is not known.
        parts: the limits of all pools of the framework on the same GPU.
        part: which of them that pool is, counted from 0.
        gpu: the GPU; None if that is not known.
        seen: when the GPU was read, in seconds since the epoch.
        processes: those that hold memory of it, the largest first.
        biggest: what of the user's holds most, the largest first.
        deletion: that of a name, if any, which would have been enough, and which the cell does not need as it is.
        fixed: whether what was asked for has the size of a variable, which no batch changes.
        sendable: whether the names that the cell reads can be sent to another process; None if that is not known.
        workers: of `processes` those that this notebook has started, without those of isolated calls.
        limited_by: who has set the limit, as a phrase, if it was not the user; else empty.
        gave_up: whether there were too many objects to look for all names.
        remedies: what was checked and would help, the one that costs least first.
        host: what the process is: a notebook's kernel, a session, a program.
        call: whether it was an isolated cell or call, whose process is gone.
        simulated: whether the GPUs are those of a simulated machine.
    """

    time: float
    cell: int | None = None
    shortage: Shortage
    cause: Cause = "unknown"
    pool: Pool | None = None
    parts: tuple[int, ...] = ()
    part: int = 0
    gpu: Gpu | None = None
    seen: float = 0.0
    processes: tuple[ProcessRow, ...] = ()
    biggest: tuple[NamedMemory, ...] = ()
    deletion: tuple[Remedy, ...] = ()
    fixed: bool = False
    sendable: bool | None = True
    workers: tuple[ProcessRow, ...] = ()
    limited_by: str = ""
    gave_up: bool = False
    remedies: tuple[Remedy, ...] = ()
    host: ProcessKind = "kernel"
    call: bool = False
    simulated: bool = False

    @property
    def here(self) -> str:
        """What people call the process."""
        return "notebook" if self.host == "kernel" else self.host

    @property
    def gpu_name(self) -> str:
        """What people call the GPU."""
        return "the GPU" if self.gpu is None else f"GPU {self.gpu.label}"

    def owner(self, row: ProcessRow) -> str:
        """Return whose a process is. This one's cell has just asked for memory."""
        if row.owner.who == "this":
            row = replace(row, process=row.process._replace(unused=None))
        return "the user " * (row.owner.who == "other") + phrases.owner(row, self.seen, longest=_LONGEST)


def is_memory(shortage: Shortage, gpu: Gpu | None) -> bool:
    """Return whether an error is really about memory: a library that cannot start does not say why."""
    if shortage.certain:
        return True
    return gpu is not None and gpu.free is not None and gpu.free < LIBRARY_ROOM


def find_cause(shortage: Shortage, pool: Pool | None, gpu: Gpu | None, *, started: bool, shrunk: bool = False) -> Cause:
    """Return why there was no memory.

    Args:
        shortage: what the error says.
        pool: the pool that had none.
        gpu: the GPU that it is on.
        started: whether the framework had started.
        shrunk: whether the driver had given the pool less than its limit.
    """
    size, free = shortage.size, None if gpu is None else gpu.free
    if not started:
        return "start"
    if shortage.kind == "library":
        return "library"
    if size is not None and gpu is not None and gpu.capacity is not None and size > gpu.capacity:
        return "size"
    if shortage.kind == "driver" or pool is None:
        return "gpu" if free is not None and free < max(size or 0, LIBRARY_ROOM) else "unknown"
    grows_no_more = (pool.grows or shrunk) and free is not None and free < (LIBRARY_ROOM if size is None else size)
    if pool.limit is not None and (pool.level + (size or 0) > pool.limit or (size is None and not grows_no_more)):
        return "limit" if pool.capped else "pool"
    in_pieces = size is not None and pool.room >= size
    if grows_no_more and (shrunk or not (in_pieces and pool.taken is not None)):
        return "gpu"
    return "pieces" if in_pieces else "unknown"
