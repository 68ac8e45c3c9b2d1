"""What is parked has rows, though the driver lists it nowhere: from its report, and true in every phase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.figures import tensorflow
from tests.sizes import GIB
from tfgpu_magic.model.report import GpuUse, HeldMemory, Report
from tfgpu_magic.model.rows import Parked, ParkedState, ProcessRow, Table
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.owners.attribution import Owner, together
from tfgpu_magic.monitor.table.tabulate import UNATTRIBUTED, Known, make
from tfgpu_magic.parking.reported import ParkedProcess
from tfgpu_magic.parking.rows import ParkedRows
from tfgpu_magic.parking.states import Phase

SINCE = 50.0
OWNERS = {
    1: Owner(pid=1, who="mine", text="train.ipynb", kernel=1),
    2: Owner(pid=2, who="mine", text="eval.ipynb", kernel=2, began=1),
    3: Owner(pid=3, who="other", text="maria"),
}


def entry(phase: Phase = Phase.PARKED, *, pid: int = 2, **more: Any) -> ParkedProcess:
    """Return an entry of a process that holds, or held, memory of the first GPU."""
    return ParkedProcess(
        pid=pid, began=1, phase=phase, since=SINCE, held=(HeldMemory("GPU-0", 4 * GIB),), name="eval.ipynb", **more
    )


def table(*entries: ParkedProcess, held: dict[int, int] | None = None, reports: tuple[Report, ...] = ()) -> Table:
    """Make the table of two GPUs, of which the first is held by these pids."""
    rows = held or {}
    used = sum(rows.values())
    gpus = tuple(Gpu(index=at, uuid=f"GPU-{at}", total=16 * GIB, used=0, free=16 * GIB) for at in (0, 1))
    first = gpus[0]._replace(used=used, free=16 * GIB - used)
    snapshot = Snapshot(
        time=100.0,
        listed_at=100.0,
        gpus=(first, gpus[1]),
        processes=tuple(Process(gpu="0", pid=pid, kind="C", held=size) for pid, size in rows.items()),
    )
    parked = ParkedRows(entries)
    return make(snapshot, Known(owners=OWNERS, reports=reports, notebooks=together(reports, {}), facts=[parked]))


def report(pid: int = 2, in_use: int = GIB, *, parks: bool = False) -> Report:
    """Return what a kernel reports that uses the first GPU."""
    use = GpuUse(gpu="0", policy="growth", figures=tensorflow(in_use))
    return Report(pid=pid, summary="", uses=(use,), parks=parks)


def row(made: Table, pid: int = 2, gpu: str = "0") -> ProcessRow:
    return next(row for row in made.processes if (row.pid, row.gpu) == (pid, gpu))


def test_a_parked_notebook_holds_nothing_and_is_there_with_what_it_has_elsewhere() -> None:
    made = table(entry())

    assert row(made).parked == Parked(state="parked", size=4 * GIB, since=SINCE)
    assert (row(made).held, row(made).owner, row(made).kernel) == (0, "eval.ipynb", 2)
    assert [share.who for share in made.gpus[0].shares] == ["free"]
    assert made.notes == ()


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        (Phase.LOCKING, "parking"),
        (Phase.CHECKPOINTING, "parking"),
        (Phase.PARKED, "parked"),
        (Phase.RESTORING, "restoring"),
        (Phase.UNLOCKING, "restoring"),
        (Phase.FAILED, "failed"),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_every_phase_is_said_whether_the_driver_still_lists_it_or_not(
    phase: Phase, state: ParkedState, listed: bool
) -> None:
    made = table(entry(phase), held={2: 3 * GIB} if listed else {})
    found = [row for row in made.processes if row.pid == 2]

    assert [one.parked and one.parked.state for one in found] == [state]
    assert found[0].held == (3 * GIB if listed else None if state == "failed" else 0)


def test_one_that_is_back_has_a_row_as_any_other() -> None:
    assert row(table(entry(Phase.BACK), held={2: GIB})).parked is None
    assert table(entry(Phase.BACK)).processes == ()


def test_what_is_said_is_of_the_time_at_which_the_driver_listed_its_processes() -> None:
    """Else memory would be in two places, or nowhere, until the next list."""
    later = replace(entry(), since=200.0)
    found = row(table(later, held={2: 4 * GIB}))
    back = row(table(replace(later, phase=Phase.BACK)))

    assert (found.held, found.parked and found.parked.state) == (4 * GIB, "parking")
    assert (back.held, back.parked and back.parked.state) == (0, "restoring")


def test_one_that_waits_says_for_whom() -> None:
    waits = entry(wanted=True)

    assert row(table(waits, held={1: 9 * GIB, 3: 5 * GIB})).parked == Parked(
        state="waiting", size=4 * GIB, since=SINCE, behind="train.ipynb"
    )
    assert row(table(waits)).parked == Parked(state="waiting", size=4 * GIB, since=SINCE)


def test_one_that_was_on_two_gpus_has_a_row_on_each() -> None:
    both = replace(entry(), held=(HeldMemory("GPU-0", GIB), HeldMemory("GPU-1", 2 * GIB)))
    made = table(both)

    assert [(one.gpu, one.parked and one.parked.size) for one in made.processes] == [("0", GIB), ("1", 2 * GIB)]


def test_one_whose_gpu_has_gone_is_with_the_first_one_and_says_so() -> None:
    gone = replace(entry(wanted=True), held=(HeldMemory("GPU-9", GIB),))
    made = table(gone)

    assert [(one.gpu, one.parked) for one in made.processes] == [
        ("0", Parked(state="waiting", size=GIB, since=SINCE, trouble="gone"))
    ]


def test_what_its_framework_goes_on_counting_is_not_taken_for_the_gpus() -> None:
    """Else the driver's list would lack a kernel that uses the GPU, and count as that of another namespace."""
    made = table(entry(), held={3: GIB}, reports=(report(in_use=3 * GIB),))

    assert [(one.owner, one.held) for one in made.processes] == [("maria", GIB), ("eval.ipynb", 0)]
    assert UNATTRIBUTED not in made.notes
    assert row(made).use == GpuUse(gpu="0", policy="growth")


def test_where_the_driver_fails_it_is_not_said_to_hold_what_it_reports() -> None:
    broken = Snapshot(time=1.0, error="The driver hangs.")
    use = GpuUse(gpu="GPU-0", figures=tensorflow(GIB))
    reports = (Report(pid=2, summary="", uses=(use,)), Report(pid=1, summary="", uses=(use,)))
    made = make(
        broken, Known(owners=OWNERS, reports=reports, notebooks=together(reports, {}), facts=[ParkedRows((entry(),))])
    )

    assert [one.pid for one in made.processes] == [1]


def test_a_process_that_nobody_knows_by_now_has_the_records_name() -> None:
    made = table(entry(pid=77))

    assert [(one.who, one.owner) for one in made.processes] == [("mine", "eval.ipynb")]


def test_whether_a_notebook_lets_itself_be_parked_is_in_its_row() -> None:
    reports = (report(parks=True), report(3, parks=True))
    made = table(held={1: GIB, 2: GIB, 3: GIB}, reports=reports)

    assert [one.pid for one in made.processes if one.parks] == [2]  # another user's says what it likes
