"""Kernels' reports: seen by others while the kernel lives, and gone with it, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.figures import pytorch, tensorflow
from tests.machine.boards import KERNEL
from tfgpu_magic.ground.report import Figure, GpuUse, LogicalGpu, Parked, Report
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import FIGURES_EXPIRE_AFTER, PREFIX, ReportFile, ReportFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Start = Callable[..., subprocess.Popen[str]]

REPLACES = """
import select
report_file.post(Report(pid=1, summary="x"))
print(flush=True)
size = 1
while not select.select([sys.stdin], [], [], 0)[0]:
    size = 50000 - size
    report_file.post(Report(pid=1, summary="x" * size))
"""
REPORT = Report(
    pid=7,
    summary="Ready.",
    uses=(
        GpuUse(
            gpu="GPU-1",
            policy="growth",
            logical=(LogicalGpu(name="GPU:0", limit=3),),
            figures=(*tensorflow(1, 2), *pytorch(4, 5)),
        ),
        GpuUse(gpu="GPU-2", policy="hidden", parked=Parked(size=6, back=0.5)),
    ),
    stage="using the GPUs",
    notebook="/home/me/eval.ipynb",
    busy=True,
    active=1.5,
    used_since=1.0,
)


@pytest.fixture
def start(here: BoardDirectory) -> Iterator[Start]:
    """Start kernels that post a report, then do something, and wait to be told to end."""
    started = []

    def start(summary: str = "One.", then: str = "", *, inside: Sequence[str] = ()) -> subprocess.Popen[str]:
        command = [*inside, sys.executable, "-c", KERNEL.format(then=then), summary]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.communicate()


def summaries(here: BoardDirectory) -> list[str]:
    return sorted(report.summary for report in ReportFiles(here).read())


def files(here: BoardDirectory) -> list[str]:
    return [path.name for path in here.path.iterdir()]


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"pid":1}', '{"pid":1,"summary":"","uses":[{}],"notes":[]}'])
def test_what_is_no_report_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a report|Expecting value"):
        Report.from_json(text)


@pytest.mark.parametrize(
    ("then", "killed"),
    [("", False), ("", True), ("if os.fork() == 0: sys.stdin.read(); os._exit(0)", True)],
    ids=["ended", "killed", "killed with a child"],
)
def test_the_report_of_a_kernel_that_ended_is_gone_and_cleared_away(
    here: BoardDirectory, start: Start, then: str, killed: bool
) -> None:
    kernel = start(then=then)
    if killed:
        kernel.send_signal(signal.SIGKILL)
        kernel.wait()
        assert summaries(here) == []
    else:
        kernel.communicate()

    assert files(here) == []


def test_every_kernel_is_seen_also_one_that_reads_the_others(here: BoardDirectory, start: Start) -> None:
    read = "assert [one.summary for one in ReportFiles(BoardDirectory()).read()] == ['Other.']"
    one, two = start("Other."), start("Reader.", then=read)

    assert summaries(here) == ["Other.", "Reader."]
    assert {report.pid for report in ReportFiles(here).read()} == {one.pid, two.pid}


def test_a_report_is_seen_and_whole_however_often_it_is_replaced(here: BoardDirectory, start: Start) -> None:
    kernel = start(then=REPLACES)
    report_files = ReportFiles(here)

    for _ in range(1000):
        (report,) = report_files.read()
        assert (report.pid, set(report.summary)) == (kernel.pid, {"x"})


def test_a_renamed_notebook_has_the_path_that_its_servers_report_has(here: BoardDirectory, start: Start) -> None:
    start(then="report_file.post(Report(pid=1, summary='One.', kernel='k', notebook='/Untitled.ipynb'))")
    server = start(then="report_file.post(Report(pid=1, summary='', names={'k': '/train.ipynb', 'gone': '/a.ipynb'}))")
    report_files = ReportFiles(here)
    (renamed,) = report_files.read()
    names = report_files.names
    server.communicate()
    (alone,) = report_files.read()

    assert (renamed.notebook, names) == ("/train.ipynb", {"k": "/train.ipynb", "gone": "/a.ipynb"})
    assert (alone.notebook, report_files.names) == ("/Untitled.ipynb", {})


@pytest.mark.parametrize(
    ("busy", "figures", "lasts"),
    [(False, tensorflow(1, 2), False), (True, pytorch(4, 5), False), (False, pytorch(4, 5), True)],
)
def test_a_kernel_that_should_have_posted_again_and_did_not_has_no_figures_and_one_that_sleeps_need_not(
    here: BoardDirectory, start: Start, busy: bool, figures: tuple[Figure, ...], lasts: bool
) -> None:
    posted = Report(pid=1, summary="", busy=busy, uses=(GpuUse(gpu="GPU-1", policy="growth", figures=figures),))
    start(then=f"from tfgpu_magic.ground.report import Figure, GpuUse, Parked; report_file.post({posted!r})")
    report_files = ReportFiles(here)
    fresh = report_files.read()[0].uses[0]
    (name,) = files(here)
    long_ago = time.time() - FIGURES_EXPIRE_AFTER - 1
    os.utime(here.path / name, (long_ago, long_ago))
    old = report_files.read()[0].uses[0]

    assert fresh.figures == figures
    assert (old.figures, old.policy) == (figures if lasts else (), "growth")


def test_kernels_of_packages_that_know_more_and_less_of_a_report_are_both_seen() -> None:
    """The kernel's id is a field that packages before had not, and later ones add others."""
    fields = json.loads(replace(REPORT, kernel="k").to_json())
    del fields["kernel"]
    older = json.dumps(fields)
    for part in (fields, *(each for use in fields["uses"] for each in (use, *use["figures"], *use["logical"]))):
        part["unheard"] = 1
    later = json.dumps({**fields, "kernel": "k"})

    assert Report.from_json(older) == REPORT
    assert Report.from_json(later) == replace(REPORT, kernel="k")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a pid namespace")
def test_a_kernel_in_a_container_has_the_pid_that_it_has_here_or_none(here: BoardDirectory, start: Start) -> None:
    inner = start("Inner.", inside=("unshare", "--pid", "--fork"))
    (seen,) = ReportFiles(here).read()
    outer, told = start("Outer."), here.path / "pids"
    read = f"open({str(told)!r}, 'w').write(repr([one.pid for one in ReportFiles(BoardDirectory()).read()]))"
    start("Reader.", then=read, inside=("unshare", "--pid", "--fork"))
    pids = json.loads(told.read_text())

    assert psutil.Process(seen.pid).ppid() == inner.pid
    assert len(set(pids)) == 2
    assert all(pid < 0 for pid in pids)
    assert outer.pid in {report.pid for report in ReportFiles(here).read()}


def test_what_lies_there_and_is_no_report_is_passed_over(here: BoardDirectory, start: Start) -> None:
    start()
    (here.path / f"{PREFIX}1-link").symlink_to("/etc/passwd")
    (here.path / f"{PREFIX}2-folder").mkdir()
    os.mkfifo(here.path / f"{PREFIX}3-pipe")
    (here.path / f"{PREFIX}4-empty").touch()

    assert summaries(here) == ["One."]


def test_a_simulated_machine_has_reports_of_its_own(
    here: BoardDirectory, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("Real.")
    monkeypatch.setenv("TFGPU_SIMGPU", "/some/machine")
    start("Simulated.")

    with BoardDirectory() as simulated:
        assert summaries(simulated) == ["Simulated."]
    assert summaries(here) == ["Real."]


def test_a_report_goes_where_readers_find_it_when_the_directory_is_another(here: BoardDirectory) -> None:
    report_file = ReportFile()
    report_file.post(REPORT)
    moved = here.path.rename(here.path.with_name("moved"))
    report_file.post(REPORT)
    found = files(here)
    report_file.close()

    assert [name.startswith(PREFIX) for name in found] == [True]
    assert (files(here), list(moved.iterdir())) == ([], [])
