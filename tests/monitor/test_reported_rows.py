"""What kernels report of themselves, beside the driver's figures and in their place."""

from __future__ import annotations

from dataclasses import replace

from tests.figures import pytorch, tensorflow
from tests.monitor.made_tables import RESERVED, kernel, other, owners_of, table
from tests.sizes import GIB
from tfgpu_magic.monitor.owners import Notebook
from tfgpu_magic.monitor.report import Figure, GpuUse, LogicalGpu, Report
from tfgpu_magic.monitor.rows import ProcessRow
from tfgpu_magic.monitor.tabulate import UNATTRIBUTED


def test_pids_that_only_look_like_ours_are_not_named() -> None:
    # This kernel uses the GPU and its own pid is not listed: the pids are another namespace's.
    made = table((2, 5 * GIB), report=kernel(*tensorflow(GIB, GIB), pid=77))

    assert [(row.owner, row.pid, row.held) for row in made.processes] == [
        ("this notebook", 77, None),
        ("others", None, 9 * GIB),
    ]
    assert [(share.text, share.size) for share in made.gpus[0].shares][:2] == [
        ("this notebook", GIB),
        ("others", 9 * GIB),
    ]
    assert UNATTRIBUTED in made.notes


def test_a_kernel_that_holds_nothing_need_not_be_listed() -> None:
    assert owners_of(table((2, 10 * GIB), report=kernel(pid=77))) == ["eval.ipynb"]


def test_the_kernels_word_stands_beside_the_drivers() -> None:
    row = table((1, 10 * GIB), report=kernel(*tensorflow(3, 5), policy="limit 8 GiB")).gpus[0]

    assert (row.logical, row.figures, row.policy) == ("GPU:0", tensorflow(3, 5), "limit 8 GiB")


def test_another_kernels_word_stands_beside_its_process() -> None:
    row = table((2, 10 * GIB), reports=[other(3)]).processes[0]

    assert row.use == other(3).uses[0]
    assert (row.use.used, row.use.taken, row.held) == (3 + 1, 3 + RESERVED, 10 * GIB)


def test_a_report_may_name_the_gpu_by_its_uuid() -> None:
    row = table((2, 10 * GIB), uuid="GPU-7", reports=[other(3, gpu="GPU-7")]).processes[0]

    assert row.use is not None


def test_another_users_pid_has_no_report_of_mine() -> None:
    # A kernel of mine in another container may have the pid that another user's process has here.
    assert [row.use for row in table((3, 10 * GIB), reports=[other(3, pid=3)]).processes] == [None]


def test_a_kernel_that_is_not_listed_yet_is_waited_for() -> None:
    made = table((3, 10 * GIB), reports=[other(3, used_since=89.0)])

    assert (owners_of(made), made.notes) == (["maria"], ())


def test_kernels_that_the_driver_never_lists_are_shown_by_their_own_word() -> None:
    made = table((3, 10 * GIB), reports=[other(3 * GIB, used_since=80.0, notebook="/home/me/eval.ipynb")])

    assert [(row.owner, row.held, row.known) for row in made.processes] == [
        ("eval.ipynb", None, 3 * GIB + RESERVED),
        ("others", 7 * GIB - RESERVED, 7 * GIB - RESERVED),
    ]
    assert made.notes == (UNATTRIBUTED,)


def test_what_only_pytorch_has_taken_is_the_kernels_own_word_too() -> None:
    use = GpuUse(gpu="0", figures=pytorch(GIB, 2 * GIB))
    made = table((3, 10 * GIB), reports=[Report(pid=2, summary="", uses=(use,), used_since=80.0)])

    assert [(row.owner, row.known) for row in made.processes] == [("a kernel", 2 * GIB), ("others", 8 * GIB)]
    assert made.notes == (UNATTRIBUTED,)


def test_a_kernel_in_another_container_shows_nothing_of_the_pids_here() -> None:
    made = table((2, 10 * GIB), reports=[other(3 * GIB, pid=-7, used_since=80.0)])

    assert (owners_of(made), made.notes) == (["eval.ipynb"], ())


def test_one_kernel_that_is_listed_shows_that_the_pids_are_ours() -> None:
    made = table((2, 10 * GIB), reports=[other(3), other(4, pid=77, used_since=0.0)])

    assert (owners_of(made), made.notes) == (["eval.ipynb"], ())


def test_where_the_driver_refuses_the_list_kernels_speak_for_themselves() -> None:
    made = table(listed=False, error="no list of processes", reports=[other(3 * GIB)])

    assert owners_of(made) == ["a kernel", "not told whose"]


def test_logical_gpus_are_named_together_and_figures_that_are_not_known_are_none() -> None:
    two = GpuUse(gpu="0", logical=(LogicalGpu(name="GPU:0"), LogicalGpu(name="GPU:1")))

    made = table(report=Report(pid=1, summary="", uses=(two,))).gpus[0]
    assert (made.logical, made.figures, two.used, two.taken) == ("GPU:0 GPU:1", (), None, None)


def test_memory_is_worth_asking_back_where_a_notebook_of_mine_has_long_been_idle_and_keeps_much() -> None:
    idle = ProcessRow(
        gpu="0", pid=2, kind="C", who="mine", owner="eval.ipynb", held=10 * GIB, kernel=2,
        use=GpuUse(gpu="0", figures=tensorflow(GIB)), notebook=Notebook(state="idle", active=0.0),
    )  # fmt: skip

    def using(*figures: Figure) -> ProcessRow:
        return replace(idle, use=GpuUse(gpu="0", figures=figures))

    most = int(9.9 * GIB)
    assert idle.spare(300.0)
    assert not idle.spare(299.0)
    assert not replace(idle, notebook=Notebook(state="busy", active=0.0)).spare(300.0)
    assert not replace(idle, notebook=None).spare(300.0)
    assert not replace(idle, who="other").spare(300.0)
    assert not replace(idle, who="this").spare(300.0)
    assert not replace(idle, kernel=1).spare(300.0)  # a child: to shut it down is its kernel's
    assert not replace(idle, held=None).spare(300.0)
    assert not using(*tensorflow(GIB), *pytorch(int(8.9 * GIB), 9 * GIB)).spare(300.0)
    assert using(*pytorch(GIB, most)).spare(300.0)  # what it has reserved and does not use comes back, too
    assert not using(*tensorflow(most)).spare(300.0)
    assert not using().spare(300.0)


def test_a_report_of_a_gpu_that_is_not_here_changes_nothing() -> None:
    assert table(report=kernel(gpu="7")).gpus == table().gpus


def test_summary_and_notes_are_kept() -> None:
    made = table(used=0, report=kernel())

    assert (made.summary, made.notes) == ("Ready.", ("Note.",))


def test_where_the_driver_lists_no_processes_notebooks_have_the_share_that_they_say_themselves() -> None:
    told = other(GIB, used_since=80.0)
    silent = table((3, 6 * GIB), used=6 * GIB, reports=[told]).gpus[0]
    listed = table((2, None), used=6 * GIB, reports=[told]).gpus[0]  # held is not told, as on WSL

    assert next((share.who, share.size) for share in silent.shares) == ("mine", GIB + RESERVED)
    assert [share.who for share in listed.shares] == ["others", "free"]
