"""What reports on a kernel or a program: what goes wrong in it reaches no cell, and no import waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.events import EventManager, available_events

from tests.machine.boards import descriptors
from tests.waiting import until
from tfgpu_magic.frameworks import self_report
from tfgpu_magic.ground.report import GpuUse, Report
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFile
from tfgpu_magic.notebook import report_schedule, reporter
from tfgpu_magic.notebook.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAID = Report(pid=os.getpid(), summary="", uses=(GpuUse(gpu="GPU-1", policy="growth"),), stage="using the GPUs")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BoardDirectory]:
    monkeypatch.delenv("TFGPU_SIMGPU", raising=False)
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    monkeypatch.setattr(self_report, "short_report", lambda: SAID)
    monkeypatch.setattr(report_schedule, "EVERY", 0.02)
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
    monkeypatch.setattr(self_report, "short_report", fail)
    until(lambda: not posted[-1].uses, seconds=5)
    monkeypatch.setattr(self_report, "short_report", lambda: SAID)
    until(lambda: posted[-1].uses, seconds=5)


LOADS = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from tfgpu_magic.notebook.loading import magics_of
shell, how = InteractiveShell.instance(), sys.argv[1]
see = "print(magics_of(get_ipython()).reporter._running)"
shell.user_ns["magics_of"] = magics_of
if how == "started":
    shell.run_line_magic("load_ext", "tfgpu_magic")
else:
    shell.run_cell("%load_ext tfgpu_magic\\nget_ipython().run_cell('pass')\\n" + see, silent=how == "silent")
shell.run_cell(see)
print(magics_of(shell).reporter._running)
"""


@pytest.mark.parametrize(
    ("how", "found"),
    [("cell", ["True", "True", "False"]), ("silent", ["False", "True", "False"]), ("started", ["True", "False"])],
)
def test_the_cell_that_loads_the_extension_runs_until_its_end_and_no_other_is_left_over(
    how: str, found: list[str]
) -> None:
    done = subprocess.run([sys.executable, "-c", LOADS, how], capture_output=True, text=True, check=True)

    assert done.stdout.split() == found


def test_where_no_report_can_be_posted_nothing_piles_up(
    here: BoardDirectory, reporting: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def refuse(*_: object, **__: object) -> None:
        tried.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    reporting.start()
    until(lambda: len(tried) > 1, seconds=5)
    before = descriptors(here.path)
    until(lambda: len(tried) > 20, seconds=5)

    assert 0 < descriptors(here.path) <= before + 2  # one may be open just now


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Reporter:
    """The reporter of a program, which never stands in the way of the program's own imports."""
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    return Reporter(name="program.py")


def test_frameworks_that_two_threads_import_at_once_start_one_thread(
    program: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, begun, go = program._thread.start, [], threading.Event()

    def slowly() -> None:
        begun.append(threading.current_thread())
        go.wait()
        start()

    monkeypatch.setattr(program._thread, "start", slowly)
    errors: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    imports = [threading.Thread(target=program._imported, args=(None,)) for _ in range(2)]
    for one in imports:
        one.start()
    until(lambda: begun)
    go.set()
    for one in imports:
        one.join()
    program.stop()

    assert (len(begun), errors) == (1, [])


def test_where_no_thread_can_be_started_an_import_goes_on(program: Reporter, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def fail() -> None:
        tried.append("a thread")
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(program._thread, "start", fail)
    program._imported(None)
    program._imported(None)

    assert tried == ["a thread"] * 2  # the next import tries again


def test_what_a_program_asks_or_imports_at_its_very_end_waits_for_nothing(program: Reporter) -> None:
    def ends() -> None:
        program.stop()
        program.announce()
        program._imported(None)

    end = threading.Thread(target=ends, daemon=True)
    end.start()
    end.join(20)

    assert not end.is_alive()


def test_a_program_that_starts_kernels_promises_nothing_until_it_imports_a_framework_itself(
    program: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bool] = []
    monkeypatch.setattr(
        "tfgpu_magic.notebook.publisher.Publisher.publish", lambda _, **report: said.append(report["promises"])
    )

    program.announce()
    program._starts_kernels(None)
    monkeypatch.setattr("tfgpu_magic.frameworks.registry.imported_names", lambda: {"PyTorch"})
    program.announce()

    assert said == [True, False, True]
