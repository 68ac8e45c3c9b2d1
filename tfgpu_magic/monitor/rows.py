"""A snapshot, its owners and this kernel's own word to the rows that every view shows: pure. Views draw them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tfgpu_magic.monitor.owners import Owner, Who
from tfgpu_magic.units import BINARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfgpu_magic.monitor.report import GpuUse, Report
    from tfgpu_magic.monitor.snapshot import Gpu, Snapshot

UNATTRIBUTED = (
    "Attribution is not available here: the driver does not name this machine's processes, as in some containers. "
    "What cannot be named is shown as others."
)

NOT_TOLD = "not told whose"
"""Whose memory is that the driver could name and does not."""

ShareOf = Literal["this", "mine", "others", "free"]
"""Whose a part of a GPU's memory is: this notebook's, my other processes', anyone else's, nobody's."""

SMALLEST_REST = 256 * BINARY["MiB"]
"""Bytes in use that no process accounts for and that need no explanation: what the driver itself takes is less."""


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
        name: the product's name, without the maker's.
        logical: TensorFlow's names for it, ``GPU:0 GPU:1``; empty when it has none.
        used: bytes that anyone holds.
        total: bytes of memory.
        free: bytes that nobody holds.
        in_use: bytes in use by this notebook's TensorFlow, of all logical GPUs here together.
        peak: the most bytes that were in use; of several logical GPUs, the sum of their peaks, which may have
            been at different times.
        policy: this notebook's policy in words; empty when there is none.
        unified: whether memory is shared with the CPU.
        mig: whether this GPU is cut into instances, which have rows of their own.
        error: why figures are missing, in words.
        shares: whose the memory is, in the order of `ShareOf`; empty when that is unknown.
    """

    gpu: str
    name: str
    logical: str = ""
    used: int | None = None
    total: int | None = None
    free: int | None = None
    in_use: int | None = None
    peak: int | None = None
    policy: str = ""
    unified: bool = False
    mig: bool = False
    error: str | None = None
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process on one GPU, or all that could not be named together.

    Attributes:
        gpu: the `Gpu.label`.
        pid: the process id; None for what no listed process accounts for.
        kind: ``C``, ``G``, ``C+G`` or ``M+C``; empty where `pid` is None.
        who: whose it is.
        owner: the same for people; may be hostile text, so a view must escape it.
        held: bytes; None where the driver does not say.
    """

    gpu: str
    pid: int | None
    kind: str
    who: Who
    owner: str
    held: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What every view shows.

    Attributes:
        gpus: a row for each GPU, in the snapshot's order.
        processes: a row for each process, by GPU, the largest first and the unknown last.
        summary: this kernel's state, one sentence; empty when it said nothing.
        notes: what a reader must know besides, a sentence each.
        simulated: whether the GPUs are those of a simulated machine.
        error: why there is nothing to show, in words.
        absent: there is no driver or no GPU here, as opposed to one that fails.
    """

    gpus: tuple[GpuRow, ...] = ()
    processes: tuple[ProcessRow, ...] = ()
    summary: str = ""
    notes: tuple[str, ...] = ()
    simulated: bool = False
    error: str | None = None
    absent: bool = False


def make(snapshot: Snapshot, owners: Mapping[int, Owner], report: Report | None = None) -> Table:
    """Make the rows that every view shows.

    Args:
        snapshot: what the driver says.
        owners: the owner of each pid in it.
        report: what this kernel says of itself.
    """
    uses = {use.gpu: use for use in report.uses} if report else {}
    strangers = _strangers(snapshot, report)
    gpus: list[GpuRow] = []
    processes: list[ProcessRow] = []
    for gpu in snapshot.gpus:
        rows = sorted(_rows(snapshot, gpu.label, {} if strangers else owners), key=_largest_first)
        rest = _rest(gpu, rows)
        gpus.append(_gpu_row(gpu, rows, uses.get(gpu.label)))
        processes.extend([*rows, *([_unlisted(gpu, rest)] if rest else [])])
    unnamed = any(row.who == "unknown" and (row.pid or not snapshot.processes) for row in processes)
    return Table(
        gpus=tuple(gpus),
        processes=tuple(processes),
        summary=report.summary if report else "",
        notes=(*snapshot.notes, *((UNATTRIBUTED,) if unnamed else ()), *(report.notes if report else ())),
        simulated=snapshot.simulated,
        error=snapshot.error,
        absent=snapshot.absent,
    )


def _strangers(snapshot: Snapshot, report: Report | None) -> bool:
    """Tell whether the pids are another namespace's: this kernel uses a GPU whose list does not have its pid.

    One of them may then look like a process of this machine, and would be named wrongly.
    """
    if report is None:
        return False
    listed = {gpu.label for gpu in snapshot.gpus if gpu.listed}
    used = any(logical.in_use for use in report.uses if use.gpu in listed for logical in use.logical)
    return used and all(process.pid != report.pid for process in snapshot.processes)


def _rows(snapshot: Snapshot, gpu: str, owners: Mapping[int, Owner]) -> Iterable[ProcessRow]:
    for process in snapshot.processes:
        if process.gpu == gpu:
            owner = owners.get(process.pid) or Owner(pid=process.pid, who="unknown", text="others")
            yield ProcessRow(
                gpu=gpu, pid=process.pid, kind=process.kind, who=owner.who, owner=owner.text, held=process.held
            )


def _largest_first(row: ProcessRow) -> tuple[bool, int, int]:
    return row.held is None, -(row.held or 0), row.pid or 0


def _rest(gpu: Gpu, rows: Sequence[ProcessRow]) -> int | None:
    """Say how many bytes are in use beyond what the listed processes hold; None when unknown or not worth a row."""
    if gpu.used is None or gpu.mig or _untold(rows):
        return None
    rest = gpu.used - sum(row.held or 0 for row in rows)
    return rest if rest > max(SMALLEST_REST, (gpu.total or 0) // 100) else None


def _untold(rows: Sequence[ProcessRow]) -> bool:
    """Tell whether a process with a name holds memory that the driver does not tell, as on WSL."""
    return any(row.held is None and row.who != "unknown" for row in rows)


def _unlisted(gpu: Gpu, held: int) -> ProcessRow:
    owner = "others" if gpu.listed else NOT_TOLD
    return ProcessRow(gpu=gpu.label, pid=None, kind="", who="unknown", owner=owner, held=held)


def _gpu_row(gpu: Gpu, rows: Sequence[ProcessRow], use: GpuUse | None) -> GpuRow:
    row = GpuRow(
        gpu=gpu.label,
        name=(gpu.name or "N/A").removeprefix("NVIDIA "),
        used=gpu.used,
        total=gpu.total,
        free=gpu.free,
        unified=gpu.unified,
        mig=gpu.mig,
        error=gpu.error,
        shares=_shares(gpu, rows),
    )
    if use is None:
        return row
    return replace(
        row,
        logical=" ".join(logical.name for logical in use.logical),
        in_use=_sum(logical.in_use for logical in use.logical),
        peak=_sum(logical.peak for logical in use.logical),
        policy=use.policy,
    )


def _sum(sizes: Iterable[int | None]) -> int | None:
    """Add up, where all are known and there are any."""
    known = list(sizes)
    return sum(size for size in known if size is not None) if known and None not in known else None


def _shares(gpu: Gpu, rows: Sequence[ProcessRow]) -> tuple[Share, ...]:
    if gpu.used is None or not gpu.total or gpu.mig:
        return ()
    this = sum(row.held or 0 for row in rows if row.who == "this")
    mine = sum(row.held or 0 for row in rows if row.who == "mine")
    others = max(0, gpu.used - this - mine)
    # Where the list or a process's memory is not told, the rest may be anyone's.
    rest = NOT_TOLD if _untold(rows) or not gpu.listed else "others"
    free = gpu.free if gpu.free is not None else max(0, gpu.total - gpu.used)
    shares = (
        Share(who="this", text="this notebook", size=this),
        Share(who="mine", text="yours, elsewhere", size=mine),
        Share(who="others", text=rest, size=others),
        Share(who="free", text="free", size=free),
    )
    return tuple(share for share in shares if share.size)
