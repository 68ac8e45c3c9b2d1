"""Whatever a call does, and whatever interrupts or kills it: a clear outcome in bounded time, and the next works."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.isolate import deeds
from tests.isolate.rig import call, interrupt_to_the_end, prepare, run, soon
from tests.slack import SLACK
from tfgpu_magic.errors import TimedOut, WorkerDied
from tfgpu_magic.isolate import watch
from tfgpu_magic.isolate.process import exit_cause

pytestmark = pytest.mark.usefixtures("light")

LOOPS = [deeds.loop_in_python, deeds.loop_in_python_deaf, deeds.hang_in_c]
DEAF = LOOPS[1:]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a call that does not heed soon."""
    for patience in ("GRACE", "PATIENCE"):
        monkeypatch.setattr(watch, patience, 0.5 * SLACK)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing come of time alone."""
    for patience in ("GRACE", "PATIENCE"):
        monkeypatch.setattr(watch, patience, 3600.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("function", "args", "status", "told"),
    [
        (deeds.segfault, (), -signal.SIGSEGV, "SIGSEGV, segmentation fault"),
        (os._exit, (3,), 3, "exit status 3"),
        (os._exit, (0,), 0, "exit status 0"),
        (deeds.kill_itself, (signal.SIGKILL,), -signal.SIGKILL, "SIGKILL, killed. Somebody sent it"),
        (deeds.kill_itself, (signal.SIGTERM,), -signal.SIGTERM, "SIGTERM, terminated"),
        (deeds.kill_itself, (signal.SIGUSR1,), -signal.SIGUSR1, "SIGUSR1, user defined signal 1"),
        (deeds.kill_itself, (signal.SIGRTMIN + 3,), -(signal.SIGRTMIN + 3), f"signal {signal.SIGRTMIN + 3}"),
    ],
)
def test_a_process_that_dies_is_told_how(
    function: Callable[..., Any], args: tuple[Any, ...], status: int, told: str
) -> None:
    with pytest.raises(WorkerDied) as caught:
        run(function, args, {})

    assert f"The call's process ended without an answer: {told}" in str(caught.value)
    assert (caught.value.status, caught.value.signal) == (status, -status if status < 0 else None)
    assert not caught.value.stopped
    assert run(deeds.nothing, (), {}) == 1


def test_a_crash_shows_the_line_that_it_came_from() -> None:
    one, paper = call(deeds.segfault)
    with pytest.raises(WorkerDied) as caught:
        one.run_process(prepare())

    where = str(caught.value).splitlines()[1:]
    assert [line.partition(", line ")[2].partition(", ")[2] for line in where] == ["string_at", "segfault"]
    assert where[0].startswith("  It crashed in ctypes/__init__.py, line ")
    assert where[1].startswith("  in tests/isolate/deeds.py, line ")
    assert paper.text["stderr"] == ""


def test_memory_that_runs_out_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        run(deeds.run_out_of_memory, (), {})


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("loop", LOOPS)
def test_an_endless_loop_is_ended_by_its_timeout(loop: Callable[..., Any]) -> None:
    with pytest.raises(TimedOut, match=r"longer than 0\.3 s") as caught:
        call(loop, timeout=0.3)[0].run_process(prepare()).value()

    assert caught.value.seconds == 0.3


@pytest.mark.parametrize("loop", LOOPS)
def test_an_endless_loop_is_ended_by_interrupts(
    loop: Callable[..., Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if loop in DEAF:  # one that heeds has the time of a busy machine, also to end
        request.getfixturevalue("impatient")
    one, paper = call(loop, str(tmp_path / "mark"))
    interrupt = partial(interrupt_to_the_end, one) if loop in DEAF else one.interrupt
    with soon(tmp_path / "mark", interrupt), pytest.raises(KeyboardInterrupt) as caught:
        one.run_process(prepare()).value()

    assert ("did not end, and was killed" in str(caught.value)) == (loop in DEAF)
    assert ("The next interrupt kills it." in paper.text["stderr"]) == (loop in DEAF)


def test_ctrl_c_goes_to_the_call_and_a_call_may_heed_it(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    ctrl_c = partial(os.kill, os.getpid(), signal.SIGINT)
    with soon(tmp_path / "one", ctrl_c), pytest.raises(KeyboardInterrupt):
        run(deeds.loop_in_python, (str(tmp_path / "one"),), {})
    with soon(tmp_path / "other", ctrl_c):
        assert run(deeds.heed, (str(tmp_path / "other"),), {}) == "heeded"

    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("delay", [-1, *(n * 0.004 for n in range(10))])
def test_an_interrupt_at_any_moment_is_heeded(delay: float) -> None:
    one, paper = call(deeds.loop_in_python)
    timer = threading.Timer(delay, one.interrupt)
    timer.start()
    if delay < 0:
        timer.join()
    with pytest.raises(KeyboardInterrupt):
        one.run_process(prepare()).value()
    timer.join()

    assert paper.text["stderr"] == ""


def test_descriptors_that_are_closed_are_told() -> None:
    one, paper = call(os.closerange, 3, 1000)
    with pytest.raises(WorkerDied, match="exit status 1"):
        one.run_process(prepare())

    assert "closed descriptors that were not its own" in paper.text["stderr"]


def test_a_result_that_has_no_room_is_told() -> None:
    with pytest.raises(OSError, match=r"no room for .* bytes of memory to share with another process"):
        run(deeds.limited, (resource.RLIMIT_FSIZE, 2**20, 2**22), {})


def test_a_call_that_may_open_no_more_files_answers_all_the_same() -> None:
    assert len(run(deeds.limited, (resource.RLIMIT_NOFILE, 3, 2**22), {})) == 2**22


@pytest.mark.parametrize(("late", "told"), [(True, "there"), (False, "The working directory was removed")])
def test_a_directory_that_is_gone_is_told(
    late: bool, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    order = prepare() if late else None
    (tmp_path / "there").rmdir()

    with pytest.raises(FileNotFoundError, match=told):
        call(deeds.nothing)[0].run_process(order or prepare()).value()


# An interrupt is for the call, which may take its time, however often it comes; it kills once a line has said so.

SOON = 0.3 * SLACK


@pytest.fixture
def offering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offer soon to kill a call that has not ended; one that saves takes longer than that."""
    monkeypatch.setattr(watch, "PATIENCE", SOON)


def save(mark: str) -> str:
    time.sleep(3 * SOON)
    Path(mark).with_name("saved").touch()
    return "saved"


def work(mark: str) -> None:
    Path(mark).touch()
    time.sleep(60)


def catch(mark: str) -> str:
    try:
        work(mark)
    except KeyboardInterrupt:
        return save(mark)
    return "never"


@pytest.mark.usefixtures("offering")
def test_a_call_that_heeds_an_interrupt_may_take_its_time(tmp_path: Path) -> None:
    one, _ = call(catch, str(tmp_path / "mark"))
    with soon(tmp_path / "mark", one.interrupt):
        assert one.run_process(prepare()).value() == "saved"


@pytest.mark.usefixtures("offering")
def test_a_call_that_heeds_its_timeout_may_save_what_it_has(tmp_path: Path) -> None:
    one, paper = call(catch, str(tmp_path / "mark"), timeout=8 * SOON)
    answer = one.run_process(prepare())

    assert answer.late is None
    assert answer.value() == "saved"
    assert (tmp_path / "saved").exists()
    assert "was interrupted, and gave its value" in paper.text["stderr"]


# What is told of how a process ended


@pytest.mark.parametrize(
    ("before", "now", "memory", "told"),
    [
        (None, None, None, "cannot be told here"),
        (3, None, None, "cannot be told here"),
        (None, 4, None, "cannot be told here"),
        (3, 3, False, "the kernel's out-of-memory killer did not"),
        (3, 4, True, "most likely memory ran out"),
    ],
)
def test_a_kill_names_the_out_of_memory_killer_as_far_as_it_can(
    before: int | None, now: int | None, memory: bool | None, told: str
) -> None:
    died = exit_cause.died(-signal.SIGKILL, before, now)

    assert told in str(died)
    assert (died.status, died.signal, died.memory) == (-signal.SIGKILL, signal.SIGKILL, memory)
    assert exit_cause.died(-signal.SIGSEGV, before, now).memory is False
