"""The thread that reports on a kernel: what goes wrong in it reaches no cell, and it lets go when it is told to."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.events import EventManager, available_events

from tests.monitor.boards import descriptors
from tests.waiting import until
from tfgpu_magic import reporter
from tfgpu_magic.config import self_report
from tfgpu_magic.isolate import job_list
from tfgpu_magic.monitor.directory import BoardDirectory
from tfgpu_magic.monitor.report import GpuUse, Report
from tfgpu_magic.monitor.report_files import PREFIX, ReportFile
from tfgpu_magic.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAID = Report(pid=os.getpid(), summary="", uses=(GpuUse(gpu="GPU-1", policy="growth"),), stage="using the GPUs")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BoardDirectory]:
    monkeypatch.delenv("TFGPU_SIMGPU", raising=False)
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    monkeypatch.setattr(self_report, "brief", lambda: SAID)
    monkeypatch.setattr(reporter, "EVERY", 0.02)
    monkeypatch.setattr(reporter, "_GATHER", 0.0)
    with BoardDirectory() as here:
        yield here


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[Report]:
    """The reports that are posted."""
    posted: list[Report] = []
    post = ReportFile.post

    def remember(self: ReportFile, report: Report) -> None:
        post(self, report)
        posted.append(report)

    monkeypatch.setattr(ReportFile, "post", remember)
    return posted


@pytest.fixture
def reporting() -> Iterator[Reporter]:
    """A reporter of a kernel in which a cell runs."""
    shell: Any = SimpleNamespace(user_ns={}, magics_manager=SimpleNamespace(registry={}))
    shell.events = EventManager(shell, available_events)
    made = Reporter(shell, running=True)
    yield made
    made.stop()


def fail(*_: object) -> Any:
    raise ValueError("Multiple devices matching the provided string 'GPU:0'")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_figures_that_cannot_be_had_are_unknown_until_they_can(
    here: BoardDirectory, posted: list[Report], reporting: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporting.start()
    until(lambda: posted and posted[-1].uses, seconds=5)
    monkeypatch.setattr(self_report, "brief", fail)
    until(lambda: not posted[-1].uses, seconds=5)
    monkeypatch.setattr(self_report, "brief", lambda: SAID)
    until(lambda: posted[-1].uses, seconds=5)


def test_a_report_that_comes_after_the_end_leaves_nothing_behind(
    here: BoardDirectory, posted: list[Report], reporting: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def wait() -> Report:
        asked.set()
        go_on.wait(10)
        return SAID

    reporting.start()
    until(lambda: posted, seconds=5)
    monkeypatch.setattr(self_report, "brief", wait)
    monkeypatch.setattr(reporter, "PATIENCE", 0.1)
    asked.wait(10)
    reporting.stop()  # as TensorFlow may hold up whoever asks it
    go_on.set()
    reporting._thread.join(10)

    assert here.names(PREFIX) == []


def test_a_server_hears_of_a_kernel_with_a_job_in_time_however_slow_its_reports_are(
    here: BoardDirectory, posted: list[Report], reporting: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(reporter, "_say_something", said.append)
    monkeypatch.setattr(reporter, "AWAKE_EVERY", 0.2)
    monkeypatch.setattr(reporter, "SHARE", 1e-9)  # as on a busy machine: the next report comes in half a minute
    monkeypatch.setitem(
        job_list._listed, 0, job_list.JobStatus(number=0, state=job_list.RUNNING, seconds=0.0, pid=None, title="sleep")
    )
    reporting._shell.kernel = None
    reporting._busy = False
    reporting.start()
    reporting._wake.set()  # as at the end of the cell that began it
    until(lambda: len(said) > 3, seconds=10)


def test_jobs_that_are_being_imported_are_none_yet(
    here: BoardDirectory, posted: list[Report], reporting: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tfgpu_magic.isolate.job_list", ModuleType("listed"))  # as another thread sees it
    reporting.start()
    until(lambda: len(posted) > 1, seconds=5)


def test_a_kernel_whose_silent_cell_has_ended_is_reported_idle(
    here: BoardDirectory, posted: list[Report], reporting: Reporter
) -> None:
    reporting.start()
    until(lambda: posted, seconds=5)
    reporting.note_idle()
    until(lambda: not posted[-1].busy, seconds=5)

    assert posted[0].busy


def test_a_kernel_that_ends_waits_for_no_pause(
    here: BoardDirectory, posted: list[Report], reporting: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporting.start()
    until(lambda: posted, seconds=5)
    monkeypatch.setattr(reporter, "_GATHER", 60.0)
    begin = time.monotonic()
    reporting.stop()

    assert time.monotonic() - begin < 30  # and not the pause
    assert here.names(PREFIX) == []


def test_where_no_report_can_be_posted_nothing_piles_up(
    here: BoardDirectory, reporting: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def refuse(*_: object) -> None:
        tried.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(BoardDirectory, "replace", refuse)
    reporting.start()
    until(lambda: len(tried) > 1, seconds=5)
    before = descriptors(here.path)
    until(lambda: len(tried) > 20, seconds=5)

    assert 0 < descriptors(here.path) <= before + 2  # one may be open just now
