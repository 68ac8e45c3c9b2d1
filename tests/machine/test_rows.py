"""What every view shows, from a snapshot, the owners of its processes, and what kernels report of themselves.

A report stands beside the driver's figures, and in their place where there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.figures import pytorch, tensorflow
from tests.rows import changed, process_row
from tests.sizes import GIB
from tfgpu_magic.engine.status import Status
from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.message import msg
from tfgpu_magic.ground.process_kind import RoomWait
from tfgpu_magic.ground.report import Figure, GpuUse, LogicalGpu, Parked, Report
from tfgpu_magic.ground.rows import NOT_REPORTED, Notebook, Owner, ProcessRow, Share, Table
from tfgpu_magic.ground.snapshot import SMALLEST_REST, Gpu, Process, Snapshot
from tfgpu_magic.machine.owners.attribution import ENDED, OTHERS
from tfgpu_magic.tell import page_json
from tfgpu_magic.tell.tabulate import COLOURS, TONES, UNATTRIBUTED, UNLISTED, UNREAD, ProcessFacts, is_spare, make_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgpu_magic.ground.rows import Who

RESERVED = 2
"""Bytes that every other kernel's PyTorch has taken besides."""

OWNERS: dict[int, tuple[Who, str]] = {
    1: ("this", "this notebook"),
    2: ("mine", "eval.ipynb"),
    3: ("other", "maria"),
    4: ("gone", "a process that ended"),
    9: ("unknown", "others"),
}


def table(
    *held: tuple[int, int | None],
    used: int | None = 10 * GIB,
    report: Report | None = None,
    reports: Sequence[Report] = (),
    **gpu: object,
) -> Table:
    """Make the table of one GPU of 16 GiB from (pid, held) pairs; the pid tells the owner."""
    known = {"total": 16 * GIB, "used": used, "free": None if used is None else 16 * GIB - used} | gpu
    snapshot = Snapshot(
        time=100.0,
        listed_at=90.0,  # lists are not read each time
        gpus=(Gpu(index=0, **known),),  # type: ignore[arg-type]
        processes=tuple(Process(gpu="0", pid=pid, kind="C", held=size) for pid, size in held),
    )
    owners = {pid: Owner(pid=pid, who=who, text=text) for pid, (who, text) in OWNERS.items()}
    notebooks = {one.pid: Notebook(path=one.notebook) for one in reports if one.notebook}
    return make_table(snapshot, ProcessFacts(owners=owners, own=report, reports=reports, notebooks=notebooks))


NOTE = msg("Note.")


def kernel(*figures: Figure, gpu: str = "0", policy: str = "growth", pid: int = 1) -> Report:
    use = GpuUse(gpu=gpu, policy=policy, logical=(LogicalGpu(name="GPU:0"),), figures=figures)
    return Report(pid=pid, summary="Ready.", uses=(use,), notes=(NOTE,))


def other(
    in_use: int = 3, *, pid: int = 2, gpu: str = "0", used_since: float | None = None, notebook: str = ""
) -> Report:
    use = GpuUse(gpu=gpu, policy="growth", figures=(*tensorflow(in_use, 5), *pytorch(1, RESERVED)))
    return Report(pid=pid, summary="", uses=(use,), notebook=notebook, used_since=used_since)


def torch(reserved: int) -> Report:
    """Return what a kernel says in which only PyTorch has taken memory."""
    use = GpuUse(gpu="0", figures=pytorch(GIB, reserved))
    return Report(pid=2, summary="", uses=(use,), used_since=80.0)


def test_processes_are_in_the_order_of_the_gpus() -> None:
    snapshot = Snapshot(
        time=0.0,
        gpus=tuple(Gpu(index=index) for index in (10, 9)),
        processes=(Process(gpu="9", pid=1, kind="C", held=2), Process(gpu="10", pid=2, kind="C", held=1)),
    )

    assert [row.process.gpu for row in make_table(snapshot, ProcessFacts()).processes] == ["10", "9"]


def test_a_row_has_since_when_memory_is_unused_unless_its_pid_was_given_anew() -> None:
    rows = tuple(Process("0", pid, "C", pid, 0, began=began, unused=5.0) for pid, began in ((3, None), (2, 7), (1, 8)))
    owners = {pid: Owner(pid=pid, who="mine", text="", began=7) for pid in (1, 2, 3)}
    made = make_table(
        Snapshot(time=0.0, gpus=(Gpu(index=0, uuid="GPU-0"),), processes=rows), ProcessFacts(owners=owners)
    )

    assert [row.process.unused for row in made.processes] == [5.0, 5.0, None]


THEIRS = (("maria", 5), ("maria", 6), ("noor", 7), ("noor", 8), ("noor", 9))


def others(*rows: Process, names: Sequence[tuple[str, int]] = THEIRS) -> list[ProcessRow]:
    """Return the rows of other users' processes."""
    owners = {pid: Owner(pid=pid, who="other", text=name) for name, pid in names}
    return list(
        make_table(Snapshot(time=0.0, gpus=(Gpu(index=0),), processes=rows), ProcessFacts(owners=owners)).processes
    )


def test_of_each_other_user_there_is_one_row_on_each_gpu() -> None:
    rows = (Process("0", pid, kind, GIB, 20, unused=pid) for pid, kind in zip((5, 6, 7, 8, 9), "CGCCC", strict=True))
    found = others(*rows)
    noors, marias = (row.process for row in found)

    assert [row.owner.text for row in found] == ["noor", "maria"]
    assert (noors.held, noors.kind, noors.utilisation, noors.unused) == (3 * GIB, "C", 60, 9.0)
    assert (marias.held, marias.utilisation, marias.unused) == (2 * GIB, 40, 6.0)
    assert noors.pid < 0 > marias.pid != noors.pid


def test_another_users_row_is_the_same_whatever_processes_come_and_go() -> None:
    before = others(Process("0", 7, "C", GIB), Process("0", 8, "C", GIB))
    after = others(Process("0", 9, "C", GIB), Process("0", 8, "C", GIB))
    (sent,) = page_json.state(Table(processes=tuple(before)))["rows"].values()

    assert before == after
    assert sent == {"gpu": "0", "kind": "C", "who": "other", "owner": "noor", "held": 2 * GIB}


def test_another_users_only_process_is_shown_as_the_driver_has_it() -> None:
    (row,) = others(Process("0", 7, "C", GIB, 20, unused=5.0))

    assert row.process == Process("0", 7, "C", GIB, 20, unused=5.0)


@pytest.mark.parametrize(
    ("second", "known"),
    [
        (Process("0", 8, "C", None, 20, unused=5.0), (None, 40, 5.0)),
        (Process("0", 8, "C", GIB, None, unused=5.0), (2 * GIB, None, 5.0)),
        (Process("0", 8, "C", GIB, 90), (2 * GIB, 100, None)),
    ],
)
def test_what_is_not_known_of_one_is_not_known_of_all_of_a_users(
    second: Process, known: tuple[int | None, int | None, float | None]
) -> None:
    (row,) = others(Process("0", 7, "C", GIB, 20, unused=3.0), second)

    assert (row.process.held, row.process.utilisation, row.process.unused) == known


def test_a_process_of_which_nothing_is_known_is_not_called_others() -> None:
    rows = (Process("0", 8, "C", 9 * GIB), Process("0", 4, "C", GIB))
    gpu = Gpu(index=0, total=16 * GIB, used=10 * GIB, free=6 * GIB)
    owners = {
        8: Owner(pid=8, who="unknown", text="hangs", silent=True),
        4: Owner(pid=4, who="gone", text="eval.ipynb, ended"),
    }
    made = make_table(Snapshot(time=0.0, gpus=(gpu,), processes=rows), ProcessFacts(owners=owners))

    assert made.gpus[0].others == Share(text=f"hangs, {ENDED}", size=10 * GIB)


THIS, REST, LEAST = "this notebook", "no process listed", SMALLEST_REST / GIB


@pytest.mark.parametrize(
    ("made", "rows", "others", "notes"),
    [
        # The largest comes first, and the unknown last.
        (
            table((1, GIB), (2, None), (3, 9 * GIB)),
            [("maria", 9), (THIS, 1), ("eval.ipynb", None)], [("not told whose", 9)], (),
        ),
        # What no process accounts for is told as that; it does not prove a container, as newer ones list their pids.
        (table((1, 4 * GIB)), [(THIS, 4), (REST, 6)], [(REST, 6)], ()),
        (table(), [(REST, 10)], [(REST, 10)], ()),
        # Nobody is blamed for what is the driver's own, for an unknown figure, or without a list.
        (
            table((1, 10 * GIB - SMALLEST_REST)),
            [(THIS, 10 - LEAST)], [("others", LEAST)], (),
        ),
        (table((1, None), (3, GIB)), [("maria", 1), (THIS, None)], [("not told whose", 10)], ()),
        (table(listed=False, error="no list"), [("not told whose", 10)], [("not told whose", 10)], ()),
        # What was taken since the lists were read is nobody's yet.
        (
            table((3, 4 * GIB), used_then=4 * GIB),
            [("maria", 4), ("not listed yet", 6)], [("others, not listed yet", 10)], (),
        ),
        (
            table((3, 4 * GIB), used_then=10 * GIB),
            [("maria", 4), (REST, 6)], [(f"others, {REST}", 10)], (),
        ),
        # Unknown owners are said once.
        (
            table((9, GIB), (9, GIB)),
            [("others", 1), ("others", 1), (REST, 8)], [(f"others, {REST}", 10)], (UNATTRIBUTED,),
        ),
        # It is said whose memory is, also where the sum is older than the rows.
        (
            table((1, 4 * GIB), (2, 3 * GIB), (3, 2 * GIB), (4, GIB)),
            [(THIS, 4), ("eval.ipynb", 3), ("maria", 2), ("a process that ended", 1)],
            [(f"others, {ENDED}", 3)], (),
        ),
        (table((1, 9 * GIB), (3, 2 * GIB)), [(THIS, 9), ("maria", 2)], [("others", 2)], ()),
        # Below a limit they are of the whole GPU; in the limited cgroup of it, where a row may be of another cgroup.
        (
            table((1, 4 * GIB), (3, 6 * GIB), limit=8 * GIB, free=2 * GIB),
            [("maria", 6), (THIS, 4)], [("others", 6)], (),
        ),
        (
            table((1, 4 * GIB), (3, 6 * GIB), limit=8 * GIB, total=8 * GIB, used=4 * GIB, free=3 * GIB),
            [("maria", 6), (THIS, 4)], [], (),
        ),
        # Unknown stays unknown, and a GPU that is cut into instances leaves its memory to them.
        (table((1, GIB), used=None, error="the GPU is lost"), [(THIS, 1)], [], ()),
        (table(mig=True), [], [], ()),
        # A kernel uses the GPU and is not listed: the pids only look like ours, and nobody is named.
        (
            table((2, 5 * GIB), report=kernel(*tensorflow(GIB, GIB), pid=77)),
            [(THIS, None), ("others", 9)], [("others", 9)], (UNATTRIBUTED, NOTE),
        ),
        (
            table((3, 10 * GIB), reports=[torch(2 * GIB)]),
            [("a kernel", None), ("others", 8)], [("others", 8)], (UNATTRIBUTED,),
        ),
        # But not of one that holds nothing, is not listed yet, is in another container, or stands beside one of mine.
        (
            table((2, 10 * GIB), report=kernel(pid=77)),
            [("eval.ipynb", 10)], [], (NOTE,),
        ),
        (table((3, 10 * GIB), reports=[other(3, used_since=89.0)]), [("maria", 10)], [("others", 10)], ()),
        (
            table((2, 10 * GIB), reports=[other(3 * GIB, pid=-7, used_since=80.0)]),
            [("eval.ipynb", 10)], [], (),
        ),
        (
            table((2, 10 * GIB), reports=[other(3), other(4, pid=77, used_since=0.0)]),
            [("eval.ipynb", 10)], [], (),
        ),
        # Where the driver refuses the list, kernels speak for themselves.
        (
            table(listed=False, error="no list", reports=[torch(2 * GIB)]),
            [("a kernel", None), ("not told whose", 8)], [("not told whose", 8)], (),
        ),
    ],
)  # fmt: skip
def test_whose_memory_is_by_row_and_by_share(
    made: Table, rows: list[tuple[str, float | None]], others: list[tuple[str, float]], notes: tuple[str, ...]
) -> None:
    held = [(row.owner.text, row.process.held) for row in made.processes]
    assert [(owner, None if size is None else size / GIB) for owner, size in held] == rows
    assert [(share.text, share.size / GIB) for share in (made.gpus[0].others,) if share] == others
    assert made.notes == notes


def test_names_lose_the_maker_and_keep_the_simulation() -> None:
    assert table(name="NVIDIA A100-SXM4-80GB").gpus[0].gpu.name == "A100-SXM4-80GB"
    assert table(name="Simulated GPU 16GiB").gpus[0].gpu.name == "Simulated GPU 16GiB"
    assert table(name="Simulated GPU 16GiB").simulated
    assert table(name=None).gpus[0].gpu.name == "N/A"


def test_an_error_is_passed_on() -> None:
    made = make_table(Snapshot(time=0.0, error="No driver.", absent=True), ProcessFacts(own=kernel()))

    assert (made.error, made.absent, made.summary, made.gpus) == ("No driver.", True, "Ready.", ())


@given(
    st.lists(st.tuples(st.sampled_from(sorted(OWNERS)), st.none() | st.integers(1, 16 * GIB)), max_size=6),
    st.none() | st.integers(0, 16 * GIB),
)
def test_no_figures_make_an_exception_or_a_negative_size(held: list[tuple[int, int | None]], used: int | None) -> None:
    made = table(*held, used=used)

    assert all(row.process.held is None or row.process.held > 0 for row in made.processes)
    assert made.gpus[0].others is None or made.gpus[0].others.size > 0


def test_a_notebook_has_one_look_on_every_gpu_whoever_looks_and_no_two_have_the_same() -> None:
    names = {10 + number: f"{name}.ipynb" for number, name in enumerate(["train", "eval", *map(str, range(10))])}
    processes = tuple(Process(gpu=gpu, pid=pid, kind="C", held=GIB) for pid in names for gpu in ("0", "1"))
    children = tuple(Process(gpu="0", pid=pid + 100, kind="C", held=GIB) for pid in names)
    snapshot = Snapshot(time=100.0, gpus=(Gpu(index=0), Gpu(index=1)), processes=(*processes, *children))

    def looks(this: int, order: Sequence[int]) -> dict[int | None, int | None]:
        owners = {
            pid + more: Owner(
                pid=pid + more, who="this" if pid == this else "mine", text="", kernel=pid,
                notebook=Notebook(path=f"/home/maria/{names[pid]}" if pid == this else names[pid]),
            )
            for pid in order for more in (0, 100)
        }  # fmt: skip
        rows = make_table(snapshot, ProcessFacts(owners=owners)).processes
        for row in rows:
            assert {other.tone for other in rows if other.owner.kernel == row.owner.kernel} == {row.tone}
        return {row.owner.kernel: row.tone for row in rows}

    server = looks(0, list(names))

    assert sorted(tone for tone in server.values() if tone is not None) == list(range(TONES))
    assert looks(10, list(names)[::-1]) == server


def test_a_notebook_that_comes_later_takes_a_colour_that_no_other_has_and_leaves_them_theirs() -> None:
    for names in ("fill tour park a", "train eval a b", "1 2 3 4"):
        owners = {
            pid: Owner(pid=pid, who="mine", text="", kernel=pid, notebook=Notebook(path=f"{name}.ipynb"))
            for pid, name in enumerate(names.split(), 10)
        }
        rows = [Process(gpu="0", pid=pid, kind="C", held=GIB) for pid in owners]
        made = [
            make_table(
                Snapshot(time=100.0, gpus=(Gpu(index=0),), processes=tuple(rows[:count])), ProcessFacts(owners=owners)
            )
            for count in (1, 2, 3, 4)
        ]
        tones = [{row.owner.kernel: row.tone for row in one.processes} for one in made]

        assert all(one.items() <= tones[-1].items() for one in tones)
        assert len({(tone or 0) % COLOURS for tone in tones[-1].values()}) == COLOURS


# --- what kernels report ---


def test_the_kernels_word_stands_beside_the_drivers() -> None:
    row = table((1, 10 * GIB), report=kernel(*tensorflow(3, 5), policy="limit 8 GiB")).gpus[0].own

    assert (row.names, row.figures, row.policy) == ("GPU:0", tensorflow(3, 5), "limit 8 GiB")


def test_another_kernels_word_stands_beside_its_process_also_where_it_names_the_gpu_by_its_uuid() -> None:
    for gpu in ("0", "GPU-7"):
        row = table((2, 10 * GIB), uuid="GPU-7", reports=[other(3, gpu=gpu)]).processes[0]

        assert row.use == other(3, gpu=gpu).uses[0]
        assert (row.use.in_use, row.use.least_held, row.process.held) == (3 + 1, 3 + RESERVED, 10 * GIB)


def test_another_users_pid_has_no_report_of_mine() -> None:
    # A kernel of mine in another container may have the pid that another user's process has here.
    assert [row.use for row in table((3, 10 * GIB), reports=[other(3, pid=3)]).processes] == [NOT_REPORTED]


def test_kernels_that_the_driver_never_lists_are_shown_by_their_own_word() -> None:
    made = table((3, 10 * GIB), reports=[other(3 * GIB, used_since=80.0, notebook="/home/me/eval.ipynb")])

    assert [(row.owner.text, row.process.held, row.held_or_reported) for row in made.processes] == [
        ("eval.ipynb", None, 3 * GIB + RESERVED),
        ("others", 7 * GIB - RESERVED, 7 * GIB - RESERVED),
    ]
    assert made.notes == (UNATTRIBUTED,)


def test_logical_gpus_are_named_together_and_figures_that_are_not_known_are_none() -> None:
    two = GpuUse(gpu="0", logical=(LogicalGpu(name="GPU:0"), LogicalGpu(name="GPU:1")))

    made = table(report=Report(pid=1, summary="", uses=(two,))).gpus[0]
    assert (made.own.names, made.own.figures, two.in_use, two.least_held) == ("GPU:0 GPU:1", (), None, None)


def test_memory_is_worth_asking_back_where_a_notebook_of_mine_has_long_been_idle_and_keeps_much() -> None:
    idle = process_row(
        pid=2, kind="C", held=10 * GIB, kernel=2,
        use=GpuUse(gpu="0", figures=tensorflow(GIB)), notebook=Notebook(state="idle", active=0.0),
    )  # fmt: skip

    def spare(now: float = 300.0, **facts: Any) -> bool:
        row = changed(idle, **facts)
        return is_spare(row.process, row.owner, row.use, now)

    def using(*figures: Figure) -> bool:
        return spare(use=GpuUse(gpu="0", figures=figures))

    most = int(9.9 * GIB)
    assert spare()
    assert not spare(299.0)
    assert not spare(notebook=Notebook(state="busy", active=0.0))
    assert not spare(notebook=None)
    assert not spare(who="other")
    assert not spare(who="this")
    assert not spare(child="python3")  # a child: to shut it down is its kernel's
    assert not spare(held=None)
    assert not using(*tensorflow(GIB), *pytorch(int(8.9 * GIB), 9 * GIB))
    assert using(*pytorch(GIB, most))  # what it has reserved and does not use comes back, too
    assert not using(*tensorflow(most))
    assert not using()
    assert not spare(use=GpuUse(gpu="0", figures=tensorflow(0), parked=Parked(size=GIB)))


def test_summary_and_notes_are_kept_and_a_report_of_a_gpu_that_is_not_here_changes_nothing_else() -> None:
    made = table(used=0, report=kernel(gpu="7"))

    assert (made.summary, made.notes, made.gpus) == ("Ready.", (NOTE,), table(used=0).gpus)


def test_where_the_driver_lists_no_processes_notebooks_have_the_share_that_they_say_themselves() -> None:
    told = other(GIB, used_since=80.0)
    silent = table((3, 6 * GIB), used=6 * GIB, reports=[told]).gpus[0]
    listed = table((2, None), used=6 * GIB, reports=[told]).gpus[0]  # held is not told, as on WSL

    assert silent.others == Share(text=OTHERS, size=5 * GIB - RESERVED)
    assert listed.others == Share(text=UNLISTED["untold"], size=6 * GIB)


# --- GPUs that the driver tells nothing of ---


BROKEN = Snapshot(time=1.0, error="The NVIDIA driver changed under the running system.")


def uses(pid: int, size: int | None, gpu: str = "GPU-0123abcd-4567") -> Report:
    figures = () if size is None else tensorflow(size)
    return Report(pid=pid, summary="", uses=(GpuUse(gpu=gpu, figures=figures),))


def spoken(*reports: Report, snapshot: Snapshot = BROKEN, this: Report | None = None) -> Table:
    return make_table(snapshot, ProcessFacts(own=this, reports=reports, notebooks={7: Notebook(path="eval.ipynb")}))


def test_kernels_that_use_gpus_are_shown_with_what_the_driver_says_instead() -> None:
    made = spoken(uses(7, GIB), uses(8, 3 * GIB, "GPU-ffffffff-1"), this=uses(9, 2 * GIB))

    assert [(row.gpu.label, row.gpu.used, row.gpu.error) for row in made.gpus] == [
        ("GPU-0123abcd", None, UNREAD),
        ("GPU-ffffffff", None, UNREAD),
    ]
    rows = [(row.process, row.owner, row.held_or_reported) for row in made.processes]
    assert [(process.gpu, owner.who, owner.text, process.held, known) for process, owner, known in rows] == [
        ("GPU-0123abcd", "this", "this notebook", None, 2 * GIB),
        ("GPU-0123abcd", "mine", "eval.ipynb", None, GIB),
        ("GPU-ffffffff", "mine", "a kernel", None, 3 * GIB),
    ]
    assert (made.error, made.notes) == (None, (BROKEN.error,))
    for shown in (repr(Status(made)), Status(made)._repr_html_()):
        assert "eval.ipynb" in shown
        assert "The NVIDIA driver changed" in shown


def test_where_no_kernel_uses_any_the_error_stands_alone() -> None:
    assert spoken(uses(7, None)).error == BROKEN.error


def test_where_the_driver_is_read_nothing_changes() -> None:
    read = Snapshot(time=1.0, gpus=(Gpu(index=0, uuid="GPU-0123abcd-4567", used=0),))

    assert [(row.gpu.label, row.gpu.error) for row in spoken(uses(7, GIB), snapshot=read).gpus] == [("0", None)]


def test_who_waits_for_room_has_one_row_more_at_most_says_for_how_much_and_is_not_unused() -> None:
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{n}", total=16 * GIB, used=GIB, free=15 * GIB) for n in range(3))
    listed = Process("1", 2, "C", GIB, 0, unused=5.0)
    snapshot = Snapshot(time=100.0, listed_at=90.0, gpus=gpus, processes=(listed,))
    notebooks = {pid: Notebook(path=f"{name}.ipynb", state="busy") for pid, name in ((2, "eval"), (7, "train"))}

    def rows(room: float | None) -> list[tuple[str, str, str, float | None, str]]:
        waits = RoomWait(("GPU-0", "GPU-1"), 40.0, room, 1000.0, 6 * GIB, any_gpu=True)
        reports = [Report(pid=pid, summary="", waits=waits) for pid in notebooks]
        reports = [Report.from_json(one.to_json()) for one in reports]
        owners = {2: Owner(pid=2, who="mine", text="eval.ipynb")}
        made = make_table(snapshot, ProcessFacts(owners=owners, reports=reports, notebooks=notebooks)).processes
        there = (row for row in made if row.owner.who == "mine")
        return [
            (row.process.gpu, row.owner.text, phrases.held_by(row), row.process.unused, phrases.wait(row)[:-5])
            for row in there
        ]

    assert rows(None) == [
        ("1", "eval.ipynb", "1.0 GiB", None, "waits for 6.0 GiB on any GPU until "),
        ("0", "train.ipynb", "", None, "waits for 6.0 GiB on any GPU until "),
    ]
    assert {row[-1] for row in rows(99.0)} == {f"has had room since {phrases.clock(99.0)[:-5]}"}
    assert rows(60.0) == [("1", "eval.ipynb", "1.0 GiB", 5.0, "")]
