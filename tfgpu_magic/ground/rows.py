"""The rows of every view: of GPUs and of processes, in a table. `tell.tabulate` makes them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, TypeVar

from tfgpu_magic.ground.process_kind import RoomWait
from tfgpu_magic.ground.report import GpuUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tfgpu_magic.ground.message import Message
    from tfgpu_magic.ground.snapshot import Gpu, Process

Row = TypeVar("Row")

Who = Literal["this", "mine", "other", "gone", "unknown"]
"""This kernel and its children; my other processes; other users'; ended; not a pid of this machine."""

UNKNOWN = "unknown"
"""The state of a kernel of which neither a server here nor its own report tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """What is known of a kernel, from its server or from its own report.

    Attributes:
        name: what to call it, such as ``train.ipynb``; empty when that is not known.
        path: its path; on the kernel's server where that is the source, else in the file system; empty when not known.
        kernel: the kernel's id on that server; empty where the source is not a server.
        state: ``busy``, ``idle`` or another of Jupyter's words for a kernel's state: ``unknown`` of one that only its
            command line tells; empty of what need be no kernel.
        active: when it was last active, in seconds since the epoch; None when not known.
        also: the other documents and consoles that share the kernel, by path or name.
    """

    name: str = ""
    path: str = ""
    kernel: str = ""
    state: str = ""
    active: float | None = None
    also: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name, or else its file's name; empty when nothing is known."""
        return self.name or PurePath(self.path).name


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner of a process.

    Attributes:
        pid: the process id.
        who: whose it is: of ``this`` notebook, of this user's others (``mine``), of an ``other`` user, ``gone`` or
            ``unknown``.
        text: its name for people; as the process wrote it, so a view must escape it.
        child: what the process is called beside its notebook's name, if a kernel has started it and it is not the
            kernel; else empty. May be hostile text, too.
        notebook: what is known of the kernel that this process is, or is a child of; None if it is none.
        kernel: the pid of that kernel; its own where it is no kernel's child; None of what is not this user's.
        call: whether it is an isolated cell or call, which can be stopped without its kernel.
        began: when it began, in the system's ticks, so that it can be told from a later process with its pid; None of
            what is not this user's.
        silent: whether it is a process of this machine that could not be read, since it hangs.
    """

    pid: int
    who: Who
    text: str
    child: str = ""
    notebook: Notebook | None = None
    kernel: int | None = None
    call: bool = False
    began: int | None = None
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of a GPU's memory.

    Attributes:
        text: its owner, for people.
        size: bytes.
    """

    text: str
    size: int


NOT_REPORTED = GpuUse(gpu="")
"""What a process reports of a GPU if it reports nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """One GPU or MIG instance.

    Attributes:
        gpu: the driver's figures, with the product's name without its maker's.
        own: what this notebook reports of it.
        others: what is used of it, and by no process of mine; None where that is nothing or unknown.
    """

    gpu: Gpu
    own: GpuUse = NOT_REPORTED
    others: Share | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process on one GPU, or all of another user's there, or all that could not be named together.

    Attributes:
        process: the driver's figures. Its pid is 0 or negative where it has none here, or stands for several; its kind
            is empty where the driver does not list it.
        owner: whose it is.
        use: the process's own report.
        tone: the number of its notebook's tone, the same on every GPU and in every view; None of what is not mine.
        waits: its wait for room on this GPU; None if it does not wait, and has had its room for a while.
        spare: whether it is another notebook of mine that has long been idle and keeps much that it does not use.
        unlisted: if it is no process, but memory for which none is listed, why that is so: the driver lists none, has
            not listed it yet, or does not tell; else None.
    """

    process: Process
    owner: Owner
    use: GpuUse = NOT_REPORTED
    waits: RoomWait | None = None
    tone: int | None = None
    spare: bool = False
    unlisted: Literal["never", "not yet", "untold"] | None = None

    @property
    def held_or_reported(self) -> int | None:
        """Bytes that it surely takes: held, or its own figure where the driver cannot list it."""
        held, kind = self.process.held, self.process.kind
        return self.use.least_held if held is None and not kind else held


def by_gpu(rows: Iterable[Row], label: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Return rows by the label of their GPU, which `label` returns."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[label(row)].append(row)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What every view shows.

    Attributes:
        gpus: a row for each GPU, in the snapshot's order.
        processes: a row for each process, and for each other user, by GPU, the largest first and the unknown last.
        summary: this kernel's state, one sentence; empty when it has no report.
        notes: what a reader must know besides.
        simulated: whether the GPUs are those of a simulated machine.
        error: why there is nothing to show, in words.
        absent: there is no driver or no GPU here, as opposed to one that fails.
        time: when the GPUs were read, in seconds since the epoch.
        stale_since: since when the collector is missing, as `snapshot_file.Look` has it; None while it is alive.
        every: seconds from this reading to the next; 0 where there is only this one.
    """

    gpus: tuple[GpuRow, ...] = ()
    processes: tuple[ProcessRow, ...] = ()
    summary: str = ""
    notes: tuple[Message | str, ...] = ()
    simulated: bool = False
    error: str | None = None
    absent: bool = False
    time: float = 0.0
    stale_since: float | None = None
    every: float = 0.0
