"""Why a GPU ran out of memory, as plain data: no sentence, no object of the user's. `answers.why` draws it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.frameworks.shortage import Shortage
    from tfgpu_magic.host import Host
    from tfgpu_magic.insight.names import Holding
    from tfgpu_magic.model.rows import GpuRow, ProcessRow

Cause: TypeAlias = Literal["start", "size", "limit", "pool", "gpu", "pieces", "library", "unknown"]
"""Why there was none.

- ``start``: the GPU had no room for what a framework needs to start.
- ``size``: more was asked for than the GPU has.
- ``limit``: a setting limits the pool; ``pool``: what was free when the framework started does.
- ``gpu``: the pool might grow, and the GPU has no memory left.
- ``pieces``: enough of the pool is free, and not in one piece.
- ``library``: one of CUDA's libraries found no room beside the pool.
"""

WayKind: TypeAlias = Literal["free", "isolate", "restart", "park", "shut", "smaller"]
"""What is done: let go of what IPython keeps; run the cell in a process of its own; set it in a new kernel; park
another notebook, or shut it down; ask for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way out.

    Attributes:
        kind: what is done.
        words: the words of a line, a policy's as a rule; empty where there is none.
        row: the process to park or to shut down; None where there is none.
        size: bytes that would do, or that come free; None where that is not known.
    """

    kind: WayKind
    words: str = ""
    row: ProcessRow | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a GPU ran out of memory. Sizes are bytes.

    Attributes:
        time: when, in seconds since the epoch.
        cell: the cell's number; None where it was no cell, or that is not known.
        error: the name of the error's class.
        shortage: what the error says.
        cause: why there was none.
        pool: the pool that had none; None where that is not known.
        parts: the limits of all pools of the framework on the same GPU.
        part: which of them that pool is, counted from 0.
        gpu: the GPU; None where that is not known.
        seen: when the GPU was read, in seconds since the epoch.
        processes: those that hold memory of it, the largest first.
        biggest: what of the user's holds most, the largest first.
        gave_up: whether there were too many objects to look for all names.
        ways: the ways out that were tried, the one that costs least first.
        host: what the process is: a notebook's kernel, a session, a program.
        call: whether it was an isolated cell or call, whose process is gone.
        simulated: whether the GPUs are those of a simulated machine.
    """

    time: float
    cell: int | None = None
    error: str
    shortage: Shortage
    cause: Cause = "unknown"
    pool: Pool | None = None
    parts: tuple[int, ...] = ()
    part: int = 0
    gpu: GpuRow | None = None
    seen: float = 0.0
    processes: tuple[ProcessRow, ...] = ()
    biggest: tuple[Holding, ...] = ()
    gave_up: bool = False
    ways: tuple[Way, ...] = ()
    host: Host = "kernel"
    call: bool = False
    simulated: bool = False


class Kept:
    """What was explained last; it keeps no error."""

    def __init__(self) -> None:
        self.last: Explanation | None = None
        self._error = 0

    def keep(self, explanation: Explanation, error: BaseException) -> Explanation:
        """Keep an explanation as the last one, and return it."""
        self.last, self._error = explanation, id(error)
        return explanation

    def knows(self, error: BaseException) -> bool:
        """Tell whether it is this error that was explained last."""
        return self._error == id(error)

    def has(self, error: BaseException, number: int | None) -> bool:
        """Tell whether the error that has ended a cell just now was explained within that cell."""
        return number is not None and self.last is not None and (self.last.cell, self._error) == (number, id(error))


KEPT = Kept()
