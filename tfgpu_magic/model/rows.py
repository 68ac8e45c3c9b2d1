"""The rows of every view: of GPUs and of processes, in a table. `monitor.table.tabulate` makes them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from tfgpu_magic.units import BINARY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.model.message import Message
    from tfgpu_magic.model.report import Figure, GpuUse
    from tfgpu_magic.model.snapshot import Process

OnGpu = TypeVar("OnGpu", "ProcessRow", "Process")

SPARE_AFTER, SPARE = 300.0, 256 * BINARY["MiB"]
"""Seconds without activity, and bytes held and not used, from which on a notebook is worth shutting down."""

Who = Literal["this", "mine", "other", "gone", "unknown"]
"""This kernel and its children; my other processes; other users'; ended; not a pid of this machine."""
ShareOf: TypeAlias = Literal["this", "mine", "others", "free"]
"""Whose a part of a GPU's memory is: this notebook's, my other processes', another's, or free."""

UNKNOWN = "unknown"
"""The state of a kernel of which neither a server here nor its own report tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """What is known of a kernel, from its server or from its own report.

    Attributes:
        name: what to call it, such as ``train.ipynb``; empty when that is not known.
        path: its path; on the kernel's server where that is the source, else in the file system; empty when not known.
        kernel: the kernel's id on that server; empty where the source is not a server.
        state: ``busy``, ``idle`` or another of Jupyter's words for a kernel's state: `UNKNOWN` of one that only its
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
class Share:
    """A part of a GPU's memory.

    Attributes:
        who: whose it is.
        text: the same for people.
        size: bytes.
    """

    who: ShareOf
    text: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """One GPU or MIG instance. All sizes are bytes; None is unknown.

    Attributes:
        gpu: the `Gpu.label`.
        uuid: the `Gpu.uuid`.
        name: the product's name, without its maker's.
        logical: TensorFlow's names for it, ``GPU:0 GPU:1``; empty when it has none.
        used: bytes in use by any process.
        total: bytes of memory.
        free: bytes that are not in use.
        utilisation: percent of the last moment in which any kernel ran.
        temperature: degrees Celsius.
        power: milliwatts.
        figures: this notebook's frameworks' figures on it.
        policy: this notebook's policy in words; empty when there is none.
        unified: whether memory is shared with the CPU.
        mig: whether this GPU is cut into instances, which have rows of their own.
        instance: whether this is such an instance.
        error: why figures are missing, in words.
        shares: whose the memory is, in the order of `ShareOf`; empty when that is unknown.
        limit: the most that the driver lets this process's cgroup have, with all that runs in it; None without a limit.
    """

    gpu: str
    name: str
    uuid: str | None = None
    logical: str = ""
    used: int | None = None
    total: int | None = None
    free: int | None = None
    utilisation: int | None = None
    temperature: int | None = None
    power: int | None = None
    figures: tuple[Figure, ...] = ()
    policy: str = ""
    unified: bool = False
    mig: bool = False
    instance: bool = False
    error: str | None = None
    shares: tuple[Share, ...] = ()
    limit: int | None = None

    @property
    def most(self) -> int | None:
        """The bytes that can be had here: the GPU's memory, or less of it, as `Gpu.most`."""
        return self.total if self.total is None or self.limit is None else min(self.total, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process on one GPU, or all of another user's there, or all that could not be named together.

    Attributes:
        gpu: the `Gpu.label`.
        pid: the process id, negative where it has none here, or stands for several; None for what no listed process
            accounts for.
        kind: ``C``, ``G``, ``C+G`` or ``M+C``; empty where the driver does not list it.
        who: whose it is.
        owner: the same for people; may be hostile text, so a view must escape it.
        held: bytes; None where the driver has no figure.
        use: the process's own report; None where there is none.
        notebook: the notebook that it belongs to; None where it belongs to none, or that is not known.
        kernel: the pid of that notebook's kernel, or its own; None of what is not mine.
        child: what the process is called beside its notebook's name, if a kernel has started it and it is not the
            kernel; else empty. May be hostile text, too.
        call: whether it is an isolated cell or call.
        untold: whether it stands for processes that the driver could name and does not.
        tone: the number of its notebook's tone, the same on every GPU and in every view; None of what is not mine.
        utilisation: percent of the GPU that its kernels take; None where the driver does not tell.
        unused: since when it has held memory without using the GPU, in seconds since the epoch; None while it uses it,
            or that is not known.
        began: when the process began (`pids.began`); None of what is not mine, or has no pid here.
    """

    gpu: str
    pid: int | None
    kind: str
    who: Who
    owner: str
    held: int | None
    use: GpuUse | None = None
    notebook: Notebook | None = None
    kernel: int | None = None
    child: str = ""
    call: bool = False
    untold: bool = False
    tone: int | None = None
    utilisation: int | None = None
    unused: float | None = None
    began: int | None = None

    @property
    def known(self) -> int | None:
        """Bytes that it surely takes: held, or its own figure where the driver cannot list it."""
        return self.use.taken if self.held is None and not self.kind and self.use else self.held

    def spare(self, now: float) -> bool:
        """Tell whether it is another notebook of mine that has long been idle and keeps much that it does not use.

        Args:
            now: seconds since the epoch.
        """
        used, notebook = self.use.used if self.use else None, self.notebook
        if self.who != "mine" or self.child or self.held is None or used is None or notebook is None:
            return False
        if self.use is not None and self.use.parked:
            return False  # it keeps what it needs
        idle = now - notebook.active if notebook.state == "idle" and notebook.active is not None else 0.0
        return idle >= SPARE_AFTER and self.held - used >= SPARE


def by_gpu(rows: Iterable[OnGpu]) -> dict[str, list[OnGpu]]:
    """Return processes, or their rows, by the label of their GPU."""
    found: dict[str, list[OnGpu]] = defaultdict(list)
    for row in rows:
        found[row.gpu].append(row)
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
