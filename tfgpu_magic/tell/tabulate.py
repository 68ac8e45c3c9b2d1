"""Makes the rows of every view from a snapshot, its owners and kernels' reports. Pure; `rows` says what they have."""

from __future__ import annotations

import zlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from tfgpu_magic.ground.rows import NOT_REPORTED, GpuRow, Owner, ProcessRow, Share, Table, by_gpu
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.ground.units import BINARY
from tfgpu_magic.machine.owners.attribution import ENDED, OTHERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tfgpu_magic.ground.process_kind import RoomWait
    from tfgpu_magic.ground.report import GpuUse, Report
    from tfgpu_magic.ground.rows import Notebook

    _Unlisted: TypeAlias = Literal["never", "not yet", "untold"]
    _Reported = Sequence[tuple[Report, Mapping[str, GpuUse]]]

UNATTRIBUTED = (
    "Attribution is not available here: the driver does not name this machine's processes, as in some containers. "
    "Notebooks that have loaded tfgpu_magic show their own figures, and all else is shown as others."
)

HANGS = "Whose the processes are is not known: this machine's processes cannot be read at the moment."

UNLISTED: dict[_Unlisted, str] = {"never": "no process listed", "not yet": "not listed yet", "untold": "not told whose"}
"""What the owner is called of memory for which no process is listed, by `ProcessRow.unlisted`."""

UNREAD = "the driver tells nothing of it; its notebooks do"

LISTED_AFTER = 2.0
"""Seconds after which a process that has memory is in the driver's lists."""

SPARE_AFTER, SPARE = 300.0, 256 * BINARY["MiB"]
"""Seconds without activity, and bytes held and not used, from which on a notebook is worth shutting down."""

ROOM_IS_NEWS = 30.0
"""Seconds for which views tell that a process has the room for which it has waited."""

_OWN = ("this", "mine")
_SEVERAL = 2**32
"""What is taken from the number of another user's row, which stands for several pids, so that it is no process's."""

COLOURS = 4
TONES = 12
"""How many distinct tones there are: four colours by three patterns, as views draw them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """What is known of processes beside the driver's figures.

    Attributes:
        owners: the owner of each pid.
        own: this kernel's own report.
        reports: the other kernels' reports.
        notebooks: what is known of kernels, by pid, as `attribution.merge_notebooks` returns it.
        this: what the viewing process is called.
        hangs: whether this machine's processes cannot be read, so that no owner is known.
    """

    owners: Mapping[int, Owner] = field(default_factory=dict)
    own: Report | None = None
    reports: Sequence[Report] = ()
    notebooks: Mapping[int, Notebook] = field(default_factory=dict)
    this: str = "this notebook"
    hangs: bool = False


def make_table(snapshot: Snapshot, facts: ProcessFacts) -> Table:
    """Make the rows that every view shows, from the driver's figures, and where there are none, from reports alone."""
    report = facts.own
    told = [one for one in (report, *facts.reports) if one]
    answers = not (snapshot.error and any(use.least_held for one in told for use in one.uses))
    snapshot = snapshot if answers else _as_reported(snapshot, told)
    labels = {gpu.uuid: gpu.label for gpu in snapshot.gpus if gpu.uuid}
    reported = [(one, {labels.get(use.gpu, use.gpu): use for use in one.uses}) for one in told]
    foreign = _has_foreign_pids(snapshot, reported)
    own = reported[0][1] if report and answers else {}
    gpus: list[GpuRow] = []
    processes: list[ProcessRow] = []
    news = snapshot.time - ROOM_IS_NEWS
    waiting = {one.pid: one.waits for one in told if one.waits and (one.waits.room or snapshot.time) > news}
    listed = {} if foreign else by_gpu(snapshot.processes, lambda row: row.gpu)
    for gpu in snapshot.gpus:
        uses = {one.pid: of.get(gpu.label) for one, of in reported}
        rows = list(_rows(listed.get(gpu.label, ()), facts, uses, snapshot.time))
        if foreign or not gpu.listed:
            rows += _self_reported_rows(gpu.label, {row.process.pid for row in rows}, facts, reported, snapshot.time)
        rows.sort(key=_largest_first)
        why: _Unlisted = (
            "untold" if foreign or not gpu.listed else "not yet" if gpu.unattributed([gpu.used_then]) else "never"
        )
        whose = OTHERS if foreign and gpu.listed else UNLISTED[why]  # the note says what others are
        rest = None if _has_unknown(rows) else gpu.unattributed(row.held_or_reported or 0 for row in rows)
        named = gpu._replace(name=(gpu.name or "N/A").removeprefix("NVIDIA "))
        others = _others_share(gpu, rows, whose if rest else "")
        gpus.append(GpuRow(gpu=named, own=own.get(gpu.label, NOT_REPORTED), others=others))
        processes.extend([*rows, *([_unlisted_row(gpu.label, whose, why, rest)] if rest else [])])
    unnamed = any(row.owner.who == "unknown" and not row.owner.silent and row.owner.pid for row in processes)
    return Table(
        gpus=tuple(gpus),
        processes=_with_tones(_with_waits(processes, waiting, facts, snapshot.gpus)),
        summary=report.summary if report else "",
        notes=(
            *snapshot.notes,
            *([HANGS] if facts.hangs else [UNATTRIBUTED] if unnamed or foreign else []),
            *(report.notes if report else ()),
        ),
        simulated=snapshot.simulated,
        error=snapshot.error,
        absent=snapshot.absent,
        time=snapshot.time,
    )


def _as_reported(snapshot: Snapshot, reports: Iterable[Report]) -> Snapshot:
    """Return the GPUs that reports name if the driver fails, as after its update; the first note says why."""
    uuids = dict.fromkeys(use.gpu for one in reports for use in one.uses if use.least_held)
    gpus = tuple(Gpu(-1, uuid=uuid, listed=False, error=UNREAD) for uuid in uuids)
    return Snapshot(snapshot.time, gpus=gpus, notes=(snapshot.error or "", *snapshot.notes))


def _has_foreign_pids(snapshot: Snapshot, reported: _Reported) -> bool:
    """Return whether the pids belong to another namespace: kernels use GPUs whose lists have none of their pids.

    One of the pids may then equal that of a process of this machine, and would be named wrongly.
    """
    listed = {gpu.label for gpu in snapshot.gpus if gpu.listed and not gpu.error}
    pids = {process.pid for process in snapshot.processes}
    using = [
        one
        for one, uses in reported
        if one.pid > 0  # a kernel without a pid in this namespace is in no list here either
        and any(use.least_held and gpu in listed for gpu, use in uses.items())
        and (one.used_since is None or (snapshot.listed_at or 0.0) - one.used_since > LISTED_AFTER)
    ]
    return bool(using) and not any(one.pid in pids for one, _ in reported)


def _rows(
    processes: Sequence[Process],
    facts: ProcessFacts,
    uses: Mapping[int, GpuUse | None],
    now: float,
) -> Iterable[ProcessRow]:
    others: defaultdict[str, list[Process]] = defaultdict(list)
    for process in processes:
        owner = facts.owners.get(process.pid) or Owner(pid=process.pid, who="unknown", text=OTHERS)
        if owner.who == "other":
            others[owner.text].append(process)
            continue
        if process.began not in (None, owner.began) and owner.began is not None:
            process = process._replace(unused=None)  # of an earlier process that had its pid
        use = uses.get(process.pid) if owner.who in ("this", "mine") else None
        yield _row(process, owner, use or NOT_REPORTED, now)

    for name, theirs in others.items():
        yield _others_row(name, theirs)


def _row(process: Process, owner: Owner, use: GpuUse, now: float) -> ProcessRow:
    return ProcessRow(process=process, owner=owner, use=use, spare=is_spare(process, owner, use, now))


def is_spare(process: Process, owner: Owner, use: GpuUse, now: float) -> bool:
    """Return whether it is another notebook of mine that has long been idle and keeps much that it does not use.

    Args:
        process: the driver's figures.
        owner: whose it is.
        use: its own report; what is parked keeps what it needs.
        now: seconds since the epoch.
    """
    notebook, held, used = owner.notebook, process.held, use.in_use
    if owner.who != "mine" or owner.child or held is None or used is None or notebook is None or use.parked.size:
        return False
    idle = now - notebook.active if notebook.state == "idle" and notebook.active is not None else 0.0
    return idle >= SPARE_AFTER and held - used >= SPARE


def _others_row(name: str, processes: Sequence[Process]) -> ProcessRow:
    """Return what another user holds of a GPU as one row, so that views cost the same however many processes that are.

    What is not known of one of them is not known of all. Together they are unused since the last of them was used.
    """
    held = [process.held for process in processes if process.held is not None]
    use = [process.utilisation for process in processes if process.utilisation is not None]
    unused = [process.unused for process in processes if process.unused is not None]
    several = -_SEVERAL - zlib.crc32(name.encode(errors="surrogatepass"))
    process = Process(
        gpu=processes[0].gpu,
        pid=processes[0].pid if len(processes) == 1 else several,
        kind=min({process.kind for process in processes}, key=lambda kind: (-len(kind), kind)),
        held=sum(held) if len(held) == len(processes) else None,
        utilisation=min(100, sum(use)) if len(use) == len(processes) else None,
        unused=max(unused) if len(unused) == len(processes) else None,
    )
    return ProcessRow(process=process, owner=Owner(pid=process.pid, who="other", text=name))


def _self_reported_rows(
    gpu: str, listed: Collection[int], facts: ProcessFacts, reported: _Reported, now: float
) -> Iterable[ProcessRow]:
    """Yield rows for the kernels that report to use a GPU and are not in the driver's list."""
    for one, uses in reported:
        use = uses.get(gpu)
        if use is not None and use.least_held is not None and one.pid not in listed:
            yield _row(Process(gpu, one.pid), _owner_of(one.pid, facts), use, now)


def _owner_of(pid: int, facts: ProcessFacts) -> Owner:
    """Return the owner of a process that reports of itself."""
    notebook, this = facts.notebooks.get(pid), facts.own is not None and pid == facts.own.pid
    return Owner(
        pid=pid,
        who="this" if this else "mine",
        text=facts.this if this else (notebook and notebook.title) or "a kernel",
        notebook=notebook,
        kernel=pid,
    )


def _with_waits(
    rows: Sequence[ProcessRow], waiting: Mapping[int, RoomWait], facts: ProcessFacts, gpus: Sequence[Gpu]
) -> list[ProcessRow]:
    """Return the rows, last those of who waits for room, each wait once; what they hold does not count as unused."""
    found = [row for row in rows if row.process.pid not in waiting or row.owner.who not in _OWN]
    for pid, waits in waiting.items():
        there = [gpu.label for gpu in gpus if (gpu.uuid or gpu.label) in waits.gpus]
        own = [row for row in rows if row.process.pid == pid and row.owner.who in _OWN]
        at = next((row.process.gpu for row in own if row.process.gpu in there), None)
        if at is None and there:
            at = there[0]
            own.append(ProcessRow(process=Process(at, pid, held=0), owner=_owner_of(pid, facts)))
        for row in own:
            process, its = row.process._replace(unused=None), waits if row.process.gpu == at else None
            found.append(replace(row, process=process, waits=its, spare=False))
    return found


def _with_tones(rows: Sequence[ProcessRow]) -> tuple[ProcessRow, ...]:
    """Set each notebook's tone from its name, so that every viewer gives it the same one.

    Kernels choose in the order of their pids, so that one that starts takes no other's: a tone, and if possible a
    colour, that the fewest have. When an earlier one ends, or uses its first GPU, a later one may choose anew.
    """
    owners = [row.owner for row in rows]
    names = {one.kernel: (one.notebook and one.notebook.title) or "" for one in owners if one.kernel is not None}
    tones: dict[int, int] = {}
    used, colours = [0] * TONES, [0] * COLOURS
    for kernel, name in sorted(names.items()):
        wanted = zlib.crc32(name.encode(errors="surrogatepass"))
        choices = ((wanted + step) % TONES for step in range(TONES))
        tones[kernel] = tone = min(choices, key=lambda tone: (used[tone], colours[tone % COLOURS]))
        used[tone] += 1
        colours[tone % COLOURS] += 1
    return tuple(row if row.owner.kernel is None else replace(row, tone=tones[row.owner.kernel]) for row in rows)


def _largest_first(row: ProcessRow) -> tuple[bool, int, int]:
    return row.held_or_reported is None, -(row.held_or_reported or 0), row.process.pid


def _has_unknown(rows: Sequence[ProcessRow]) -> bool:
    """Return whether a named process holds an unknown amount of memory, as on WSL."""
    return any(row.held_or_reported is None and row.owner.who != "unknown" for row in rows)


def _unlisted_row(gpu: str, text: str, why: _Unlisted, held: int) -> ProcessRow:
    owner = Owner(pid=0, who="unknown", text=text)
    return ProcessRow(process=Process(gpu, held=held), owner=owner, unlisted=why)


def _others_share(gpu: Gpu, rows: Sequence[ProcessRow], unlisted: str) -> Share | None:
    """Return the part of a GPU that no process of mine uses; None if it is empty or unknown.

    It is called what that is for which no process is listed (`unlisted`). Where the list or a process's memory is
    unknown, it may belong to any process.
    """
    if gpu.used is None or not gpu.total or gpu.mig:
        return None
    own, theirs = (
        sum(row.held_or_reported or 0 for row in rows if (row.owner.who in _OWN) is mine) for mine in (True, False)
    )
    if gpu.total == gpu.limit:
        theirs = 0  # what is used in the cgroup is told, and others' rows may be of other cgroups
    listed = [row.owner for row in rows if row.owner.who not in _OWN and row.held_or_reported and theirs]
    names = [{"other": OTHERS, "gone": ENDED}.get(owner.who, owner.text) for owner in listed]
    names = list(dict.fromkeys(filter(None, (*names, unlisted))))
    text = UNLISTED["untold"] if _has_unknown(rows) or not gpu.listed else ", ".join(names) or OTHERS
    size = max(theirs, gpu.used - own)
    return Share(text=text, size=size) if size else None
