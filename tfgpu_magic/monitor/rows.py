"""Makes the rows of every view from a snapshot, its owners and kernels' reports. Pure; `views` draws them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.owners import Owner, Who
from tfgpu_magic.monitor.shares import Share, shares
from tfgpu_magic.monitor.sources import product
from tfgpu_magic.units import BINARY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tfgpu_magic.monitor.owners import Notebook
    from tfgpu_magic.monitor.report import Figure, GpuUse, Report
    from tfgpu_magic.monitor.snapshot import Gpu, Snapshot
    from tfgpu_magic.monitor.unused import Unused

    _Reported = Sequence[tuple[Report, Mapping[str, GpuUse]]]

UNATTRIBUTED = (
    "Attribution is not available here: the driver does not name this machine's processes, as in some containers. "
    "Notebooks that have loaded tfgpu_magic show their own figures, and all else is shown as others."
)

OWNER_UNKNOWN = "not told whose"
"""The owner of memory whose processes the driver could name and does not."""

LISTED_AFTER = 2.0
"""Seconds after which a process that has memory is in the driver's lists."""

TONES = 12
"""How many distinct tones there are: four colours by three patterns, as views draw them."""

SMALLEST_REST = 256 * BINARY["MiB"]
"""Bytes in use without a process from which on they get a row: the driver itself takes less."""

SPARE_AFTER, SPARE = 300.0, 256 * BINARY["MiB"]
"""Seconds without activity, and bytes held and not used, from which on a notebook is worth shutting down."""


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
        error: why figures are missing, in words.
        shares: whose the memory is, in the order of `ShareOf`; empty when that is unknown.
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
    error: str | None = None
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process on one GPU, or all that could not be named together.

    Attributes:
        gpu: the `Gpu.label`.
        pid: the process id, negative where it has none here; None for what no listed process accounts for.
        kind: ``C``, ``G``, ``C+G`` or ``M+C``; empty where the driver does not list it.
        who: whose it is.
        owner: the same for people; may be hostile text, so a view must escape it.
        held: bytes; None where the driver has no figure.
        use: the process's own report; None where there is none.
        notebook: the notebook that it belongs to; None where it belongs to none, or that is not known.
        kernel: the pid of that notebook's kernel, or its own; None of what is not mine.
        call: whether it is an isolated cell or call.
        untold: whether it stands for processes that the driver could name and does not.
        tone: the number of its notebook's tone, the same on every GPU and in every view; None of what is not mine.
        utilisation: percent of the GPU that its kernels take; None where the driver does not tell.
        unused: what it holds without using the GPU; None where that is nothing, or not known.
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
    call: bool = False
    untold: bool = False
    tone: int | None = None
    utilisation: int | None = None
    unused: Unused | None = None
    began: int | None = None

    @property
    def unused_since(self) -> float | None:
        """Since when it has not used the GPU, in seconds since the epoch; None while it does, or that is not known."""
        return self.unused.since if self.unused and not self.utilisation else None

    @property
    def child(self) -> bool:
        """Whether it is a process that the notebook's kernel has started, and not the kernel."""
        return self.kernel is not None and self.pid != self.kernel

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
        idle = now - notebook.active if notebook.state == "idle" and notebook.active is not None else 0.0
        return idle >= SPARE_AFTER and self.held - used >= SPARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What every view shows.

    Attributes:
        gpus: a row for each GPU, in the snapshot's order.
        processes: a row for each process, by GPU, the largest first and the unknown last.
        summary: this kernel's state, one sentence; empty when it has no report.
        notes: what a reader must know besides, a sentence each.
        simulated: whether the GPUs are those of a simulated machine.
        error: why there is nothing to show, in words.
        absent: there is no driver or no GPU here, as opposed to one that fails.
        time: when the GPUs were read, in seconds since the epoch.
        stale_since: since when the collector is missing, as `board.Look` has it; None while it is alive.
        every: seconds from this reading to the next; 0 where there is only this one.
    """

    gpus: tuple[GpuRow, ...] = ()
    processes: tuple[ProcessRow, ...] = ()
    summary: str = ""
    notes: tuple[str, ...] = ()
    simulated: bool = False
    error: str | None = None
    absent: bool = False
    time: float = 0.0
    stale_since: float | None = None
    every: float = 0.0


def make(
    snapshot: Snapshot,
    owners: Mapping[int, Owner],
    report: Report | None = None,
    reports: Sequence[Report] = (),
    notebooks: Mapping[int, Notebook] | None = None,
    unused: Mapping[tuple[str, int], Unused] | None = None,
) -> Table:
    """Make the rows that every view shows.

    Args:
        snapshot: the driver's figures.
        owners: the owner of each pid in it.
        report: this kernel's own report.
        reports: the other kernels' reports.
        notebooks: what is known of kernels, by pid.
        unused: what is held without use, as `unused.Record.unused` returns it.
    """
    labels = {gpu.uuid: gpu.label for gpu in snapshot.gpus if gpu.uuid}
    reported = [(one, {labels.get(use.gpu, use.gpu): use for use in one.uses}) for one in (report, *reports) if one]
    foreign = _foreign_pids(snapshot, reported)
    own = reported[0][1] if report else {}
    gpus: list[GpuRow] = []
    processes: list[ProcessRow] = []
    for gpu in snapshot.gpus:
        rows = [] if foreign else list(_rows(snapshot, gpu, owners, reported, unused or {}))
        if foreign or not gpu.listed:
            rows += _self_reported_rows(gpu.label, {row.pid for row in rows}, notebooks or {}, reported, report)
        rows.sort(key=_largest_first)
        rest = _rest(gpu, rows)
        gpus.append(_gpu_row(gpu, rows, own.get(gpu.label)))
        processes.extend([*rows, *([_unlisted(gpu, rest)] if rest else [])])
    unnamed = any(row.who == "unknown" and (row.pid or not snapshot.processes) for row in processes)
    return Table(
        gpus=tuple(gpus),
        processes=_toned(processes),
        summary=report.summary if report else "",
        notes=(
            *snapshot.notes,
            *((UNATTRIBUTED,) if unnamed or foreign else ()),
            *(report.notes if report else ()),
        ),
        simulated=snapshot.simulated,
        error=snapshot.error,
        absent=snapshot.absent,
        time=snapshot.time,
    )


def _foreign_pids(snapshot: Snapshot, reported: _Reported) -> bool:
    """Tell whether the pids belong to another namespace: kernels use GPUs whose lists have none of their pids.

    One of the pids may then equal that of a process of this machine, and would be named wrongly.
    """
    listed = {gpu.label for gpu in snapshot.gpus if gpu.listed and not gpu.error}
    pids = {process.pid for process in snapshot.processes}
    using = [
        one
        for one, uses in reported
        if one.pid > 0  # a kernel without a pid in this namespace is in no list here either
        and any(use.taken and gpu in listed for gpu, use in uses.items())
        and (one.used_since is None or (snapshot.listed_at or 0.0) - one.used_since > LISTED_AFTER)
    ]
    return bool(using) and not any(one.pid in pids for one, _ in reported)


def _rows(
    snapshot: Snapshot,
    gpu: Gpu,
    owners: Mapping[int, Owner],
    reported: _Reported,
    unused: Mapping[tuple[str, int], Unused],
) -> Iterable[ProcessRow]:
    uses = {one.pid: uses.get(gpu.label) for one, uses in reported}
    key = gpu.uuid or gpu.label
    for process in snapshot.processes:
        if process.gpu == gpu.label:
            owner = owners.get(process.pid) or Owner(pid=process.pid, who="unknown", text="others")
            yield ProcessRow(
                gpu=gpu.label,
                pid=process.pid,
                kind=process.kind,
                who=owner.who,
                owner=owner.text,
                held=process.held,
                use=uses.get(process.pid) if owner.who in ("this", "mine") else None,
                notebook=owner.notebook,
                kernel=owner.kernel,
                call=owner.call,
                utilisation=process.utilisation,
                unused=unused.get((key, process.pid)),
                began=owner.began,
            )


def _self_reported_rows(
    gpu: str,
    listed: Collection[int | None],
    notebooks: Mapping[int, Notebook],
    reported: _Reported,
    this: Report | None,
) -> Iterable[ProcessRow]:
    """Give rows for the kernels that report to use a GPU, where the driver's list does not have them."""
    for one, uses in reported:
        use = uses.get(gpu)
        if use is not None and use.taken is not None and one.pid not in listed:
            notebook = notebooks.get(one.pid)
            yield ProcessRow(
                gpu=gpu,
                pid=one.pid,
                kind="",
                who="this" if one is this else "mine",
                owner="this notebook" if one is this else (notebook and notebook.title) or "a kernel",
                held=None,
                use=use,
                notebook=notebook,
                kernel=one.pid,
            )


def _toned(rows: Sequence[ProcessRow]) -> tuple[ProcessRow, ...]:
    """Set each notebook's tone from its name, so that every viewer gives it the same one, at any time and place.

    Of two notebooks with the same tone, the later in order takes the next free one, as long as there are any.
    """
    names = {row.kernel: (row.notebook and row.notebook.title) or "" for row in rows if row.kernel is not None}
    tones: dict[int, int] = {}
    for kernel, name in sorted(names.items(), key=lambda one: (one[1], one[0])):
        wanted = zlib.crc32(name.encode(errors="surrogatepass"))
        choices = [(wanted + step) % TONES for step in range(TONES)]
        tones[kernel] = next((tone for tone in choices if tone not in tones.values()), choices[0])
    return tuple(row if row.kernel is None else replace(row, tone=tones[row.kernel]) for row in rows)


def _largest_first(row: ProcessRow) -> tuple[bool, int, int]:
    return row.known is None, -(row.known or 0), row.pid or 0


def _rest(gpu: Gpu, rows: Sequence[ProcessRow]) -> int | None:
    """Return the bytes in use beyond what the listed processes hold; None when unknown or not worth a row."""
    if gpu.used is None or gpu.mig or _holds_unknown(rows):
        return None
    rest = gpu.used - sum(row.known or 0 for row in rows)
    return rest if rest > max(SMALLEST_REST, (gpu.total or 0) // 100) else None


def _holds_unknown(rows: Sequence[ProcessRow]) -> bool:
    """Tell whether a named process holds an unknown amount of memory, as on WSL."""
    return any(row.known is None and row.who != "unknown" for row in rows)


def _unlisted(gpu: Gpu, held: int) -> ProcessRow:
    owner = "others" if gpu.listed else OWNER_UNKNOWN
    return ProcessRow(gpu=gpu.label, pid=None, kind="", who="unknown", owner=owner, held=held, untold=not gpu.listed)


def _gpu_row(gpu: Gpu, rows: Sequence[ProcessRow], use: GpuUse | None) -> GpuRow:
    row = GpuRow(
        gpu=gpu.label,
        uuid=gpu.uuid,
        name=product(gpu.name or "N/A"),
        used=gpu.used,
        total=gpu.total,
        free=gpu.free,
        utilisation=gpu.utilisation,
        temperature=gpu.temperature,
        power=gpu.power,
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
        figures=use.figures,
        policy=use.policy,
    )


def _shares(gpu: Gpu, rows: Sequence[ProcessRow]) -> tuple[Share, ...]:
    # Where the list or a process's memory is unknown, the rest may belong to any process.
    rest = OWNER_UNKNOWN if _holds_unknown(rows) or not gpu.listed else "others"
    return shares(gpu, ((row.who, row.known or 0) for row in rows), rest)
