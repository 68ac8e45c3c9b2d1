"""A kernel tells the board of its TensorFlow, and is neither moved nor held up by that."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from tests.figures import pytorch
from tests.frameworks.cells_on_machine import stand_in
from tests.magic.shell import cells
from tests.processes import on, program, run
from tests.sizes import GIB, MIB
from tests.waiting import until
from tfgpu_magic.frameworks import self_report
from tfgpu_magic.frameworks.tensorflow.devices import current_stage
from tfgpu_magic.ground.report import Report
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFile, ReportFiles
from tfgpu_magic.machine.owners.pids import notebook_of_shell
from tfgpu_magic.notebook import reporter as reporters
from tfgpu_magic.notebook.publisher import Publisher
from tfgpu_magic.notebook.report_schedule import SHARE, ReporterState, wait
from tfgpu_magic.notebook.reporter import Reporter
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.simgpu import Machine

KEEP = "import tensorflow as tf; kept = tf.zeros(128 * 2**20 // 4)"


@contextmanager
def board(machine: Machine) -> Iterator[Callable[..., Report]]:
    """Read the machine's board until a report is as is wanted."""
    with mock.patch.dict(os.environ, machine.environ()), BoardDirectory() as place:
        report_files = ReportFiles(place)

        def wait(wanted: Callable[[Report], object] = lambda _: True, *, seconds: float = 10) -> Report:
            def holds(found: tuple[Report, ...]) -> object:
                with contextlib.suppress(LookupError):  # a report may be without what is wanted of it
                    return wanted(found[0])
                return False

            return until(report_files.read, holds, seconds=seconds)[0]

        yield wait


def test_a_kernel_that_uses_a_gpu_says_what_and_under_which_policy() -> None:
    with (
        Machine.create("8GiB,16GiB") as machine,
        program(machine, _cells, "%tf_gpu visible 1; limit 2GiB", KEEP) as kernel,
        board(machine) as wait,
    ):
        said = wait(lambda one: one.uses[0].in_use and not one.busy)
        gpu = machine.gpus()[1].uuid

    (use,) = said.uses
    assert (said.pid, said.stage, said.busy) == (kernel.pid, "using the GPUs", False)
    assert (use.gpu, use.policy, use.logical[0].name, use.logical[0].limit) == (gpu, "limit 2 GiB", "GPU:0", 2 * GIB)
    in_use, peak = use.figures
    assert ([one.framework for one in use.figures], in_use.what, peak.what) == (["TensorFlow"] * 2, "in use", "peak")
    assert 128 * MIB <= in_use.size <= peak.size < 136 * MIB


def test_a_policy_that_waits_is_told_and_wakes_nothing() -> None:
    with (
        Machine.create("1x8GiB") as machine,
        program(machine, _cells, "%tf_gpu limit 2GiB", "pass") as kernel,
        board(machine) as wait,
    ):
        # A report from amid the cell may tell what TensorFlow would do without the policy; the last is that of its end.
        said = wait(lambda one: one.uses and one.uses[0].policy == "limit 2 GiB" and not one.busy)
        held = machine.held(pid=kernel.pid)

    assert (said.stage, said.uses[0].policy, said.uses[0].in_use) == (kernel.answer[1], "limit 2 GiB", None)
    assert (kernel.answer[1], held) == (Stage.LISTED.value, 0)


def test_a_cell_that_grows_is_followed_while_it_runs() -> None:
    with Machine.create("1x8GiB") as machine, program(machine, _grow_in_a_long_cell), board(machine) as wait:
        first = wait(lambda one: one.busy and one.uses[0].in_use).uses[0].in_use or 0
        wait(lambda one: one.busy and (one.uses[0].in_use or 0) >= first + 8 * MIB)


def test_a_kernel_that_ends_is_gone_from_the_board() -> None:
    with Machine.create("1x8GiB") as machine, board(machine) as wait:
        with program(machine, _cells, KEEP):
            wait()
        with pytest.raises(AssertionError, match=r"not so within .* s: \(\)"):
            wait(seconds=0.5)


def reports() -> tuple[str, ...]:
    with BoardDirectory() as place:
        return tuple(place.list_names("report-"))


@on("1x8GiB")
def test_unloading_takes_the_report_away() -> None:
    cells("pass")
    assert len(until(reports, seconds=10)) == 1

    cells("%unload_ext tfgpu_magic")

    assert reports() == ()


@on("1x8GiB")
def test_a_board_that_is_removed_gets_the_report_again() -> None:
    cells(KEEP)
    with BoardDirectory() as place:
        path = place.path
    until(reports, seconds=10)

    path.rename(Path(f"{path}-moved-{os.getpid()}"))

    until(lambda: path.exists() and reports(), seconds=10)


@on("1x8GiB", fresh=True)
def test_nothing_is_done_while_no_cell_runs_and_tensorflow_sleeps() -> None:
    """The reporter comes to a wait that nothing but a cell ends; before, it may report a cell's end."""
    waits: list[float | None] = []

    def noted(state: ReporterState, now: float) -> float | None:
        waits.append(wait(state, now))
        return waits[-1]

    with mock.patch.object(reporters, "wait", noted):
        cells("pass")
        until(lambda: waits[-1:] == [None])


def test_a_report_says_idle_only_of_figures_that_were_read_after_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = Reporter(SimpleNamespace(user_ns={}), running=True)

    def ends_meanwhile() -> Report:
        reporter._after_cell(None)
        return Report(pid=1, summary="")

    monkeypatch.setattr("tfgpu_magic.frameworks.self_report.short_report", ends_meanwhile)
    posted: list[Report] = []
    monkeypatch.setattr(ReportFile, "post", lambda _, report: posted.append(report))
    reporter._publisher = Publisher(str)
    for _ in range(2):
        reporter._publish()

    assert [report.busy for report in posted] == [True, False]


def test_a_report_that_is_slow_comes_less_often() -> None:
    with Machine.create("1x8GiB") as machine:
        slow, quick = run(machine, _between_reports, 0.05, 2), run(machine, _between_reports, 0.0, 4)

    assert min(slow) >= 0.05 / SHARE
    assert min(quick) < 0.05 / SHARE


@on("2x8GiB")
def test_pytorchs_figures_are_told_beside_tensorflows() -> None:
    cells("%tf_gpu growth", KEEP)
    kept = stand_in().zeros(GIB)

    first, second = (use.figures for use in self_report.short_report().uses)

    assert [one.framework for one in second] == ["TensorFlow", "TensorFlow"]
    assert first[2:] == pytorch(GIB, GIB)
    assert kept


def test_the_notebook_is_the_one_that_the_server_or_vs_code_names(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(user_ns=dict[str, str]())
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/lab.ipynb")
    session = notebook_of_shell(shell)  # IPython that a cell starts
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "ipykernel_launcher", "-f", "kernel-7f3a.json"])
    server = notebook_of_shell(shell)
    shell.user_ns["__vsc_ipynb_file__"] = "/home/me/code.ipynb"

    assert (session, server, notebook_of_shell(shell)) == ("", "/home/me/lab.ipynb", "/home/me/code.ipynb")


# --- what runs in a kernel on the machine ---


def _cells(*sources: str) -> tuple[list[str], str]:
    return [one.text for one in cells(*sources)], current_stage().value


def _grow_in_a_long_cell() -> None:
    grow = "import tensorflow as tf, time\nkept = []\nwhile True: kept.append(tf.zeros(2**18)); time.sleep(.1)"
    threading.Thread(target=cells, args=("%tf_gpu growth", grow), daemon=True).start()


def _between_reports(cost: float, count: int) -> list[float]:
    """Return the seconds from the end of a report that takes so long to the next one, of so many."""
    cells(KEEP)
    publish, times = Publisher.publish, list[tuple[float, float]]()

    def slow(self: Publisher, **report: Any) -> None:
        begun = time.monotonic()
        time.sleep(cost)
        publish(self, **report)
        times.append((begun, time.monotonic()))

    with mock.patch.object(Publisher, "publish", slow):
        until(lambda: len(times) > count)
    return [begun - ended for (_, ended), (begun, _) in pairwise(times)]
