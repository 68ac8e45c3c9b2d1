"""Whatever a call does, and whatever interrupts or kills it: a clear outcome in bounded time, and the next works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.isolate import deeds
from tests.isolate.rig import RUNNER, Paper, call, interrupt_to_the_end, prepare, run, soon
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic import isolated
from tfgpu_magic.errors import TimedOut, WorkerDied
from tfgpu_magic.isolate import call as calls
from tfgpu_magic.isolate import host_memory
from tfgpu_magic.isolate.leasing import Lease
from tfgpu_magic.isolate.process import exit_cause, wire
from tfgpu_magic.isolate.process.order import LEAVE
from tfgpu_magic.isolate.run import run as run_leased
from tfgpu_magic.policy.policy import NOTHING

pytestmark = pytest.mark.usefixtures("light")

LOOPS = [deeds.loop_in_python, deeds.loop_in_python_deaf, deeds.hang_in_c]
DEAF = LOOPS[1:]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a call that does not heed soon."""
    for patience in ("GRACE", "PATIENCE"):
        monkeypatch.setattr(calls, patience, 0.5 * SLACK)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing come of time alone."""
    for patience in ("GRACE", "PATIENCE"):
        monkeypatch.setattr(calls, patience, 3600.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("function", "args", "status", "told"),
    [
        (deeds.segfault, (), -signal.SIGSEGV, "SIGSEGV, segmentation fault"),
        (deeds.leave, (3,), 3, "exit status 3"),
        (deeds.leave, (0,), 0, "exit status 0"),
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
        one.run(prepare())

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
        call(loop, timeout=0.3)[0].run(prepare()).value()

    assert caught.value.seconds == 0.3


@pytest.mark.parametrize("loop", LOOPS)
def test_an_endless_loop_is_ended_by_interrupts(
    loop: Callable[..., Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if loop in DEAF:  # one that heeds has the time of a busy machine, also to end
        request.getfixturevalue("impatient")
    one, paper = call(loop, str(tmp_path / "mark"))
    thread = soon(tmp_path / "mark", partial(interrupt_to_the_end, one) if loop in DEAF else one.interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        one.run(prepare()).value()
    thread.join()

    assert ("did not end, and was killed" in str(caught.value)) == (loop in DEAF)
    assert ("The next interrupt kills it." in paper.text["stderr"]) == (loop in DEAF)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("loop", DEAF)
def test_a_call_can_be_killed_at_once(loop: Callable[..., Any], tmp_path: Path) -> None:
    one, paper = call(loop, str(tmp_path / "mark"))
    thread = soon(tmp_path / "mark", one.kill)
    with pytest.raises(KeyboardInterrupt, match="was killed"):
        one.run(prepare())
    thread.join()

    assert paper.text["stderr"] == ""


def test_ctrl_c_goes_to_the_call_and_a_call_may_heed_it(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    thread = soon(tmp_path / "mark", lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(deeds.loop_in_python, (str(tmp_path / "mark"),), {})
    thread.join()
    (tmp_path / "mark").unlink()
    thread = soon(tmp_path / "mark", lambda: os.kill(os.getpid(), signal.SIGINT))

    assert run(deeds.heed, (str(tmp_path / "mark"),), {}) == "heeded"
    assert signal.getsignal(signal.SIGINT) is before
    thread.join()


class MadeSlowly:
    """A value, amid whose making in a process Ctrl-C comes."""

    def __init__(self, home: int) -> None:
        self.home = home

    def __setstate__(self, state: dict[str, int]) -> None:
        if state["home"] == os.getpid():
            os.kill(os.getpid(), signal.SIGINT)
        vars(self).update(state)


def test_ctrl_c_that_comes_when_the_call_has_answered_is_noted_and_takes_nothing() -> None:
    @contextlib.contextmanager
    def lease() -> Iterator[Lease]:
        yield Lease(NOTHING)
        os.kill(os.getpid(), signal.SIGINT)

    def late(_: object) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return LEAVE

    for answered, given in (late, contextlib.nullcontext(Lease(NOTHING))), (lambda _: LEAVE, lease()):
        one, _ = call(deeds.echo, 5)
        one.answered = answered
        assert run_leased(one, given, RUNNER).value() == 5
        assert one.interrupted_late
    assert isolated(MadeSlowly)(os.getpid()).home == os.getpid()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("delay", [-1, *(n * 0.004 for n in range(10))])
def test_an_interrupt_at_any_moment_is_heeded(delay: float) -> None:
    one, paper = call(deeds.loop_in_python)
    timer = threading.Timer(delay, one.interrupt)
    timer.start()
    if delay < 0:
        timer.join()
    with pytest.raises(KeyboardInterrupt):
        one.run(prepare()).value()
    timer.join()

    assert paper.text["stderr"] == ""


def test_descriptors_that_are_closed_are_told() -> None:
    one, paper = call(deeds.close_all)
    with pytest.raises(WorkerDied, match="exit status 1"):
        one.run(prepare())

    assert "closed descriptors that were not its own" in paper.text["stderr"]


class Torn(Paper):
    def write(self, stream: str, text: str) -> None:
        raise ZeroDivisionError(stream, text)


def test_a_screen_that_fails_ends_the_call() -> None:
    one, _ = call(deeds.flood_lines, 10**12)
    one.sink = Torn()
    with pytest.raises(ZeroDivisionError):
        one.run(prepare())

    assert one.pid is not None
    assert not psutil.pid_exists(one.pid)


def test_a_result_that_has_no_room_is_told() -> None:
    with pytest.raises(OSError, match=r"no room for .* bytes of memory to share with another process"):
        run(deeds.limited, (resource.RLIMIT_FSIZE, 2**20, 2**22), {})


def test_a_call_that_may_open_no_more_files_answers_all_the_same() -> None:
    assert len(run(deeds.limited, (resource.RLIMIT_NOFILE, 3, 2**22), {})) == 2**22


def test_without_descriptors_a_call_is_refused_clearly() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in range(9):
        free = [os.dup(0) for _ in range(spare)]
        os.close(limit := os.dup(0))
        for descriptor in free:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                run(deeds.nothing, (), {})
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_directory_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    (one, _), order = call(deeds.nothing), prepare()
    (tmp_path / "there").rmdir()
    answer = one.run(order)

    with pytest.raises(FileNotFoundError, match="there"):
        answer.value()


def test_from_a_directory_that_was_removed_no_call_begins_and_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    (tmp_path / "there").rmdir()

    with pytest.raises(FileNotFoundError, match="The working directory was removed"):
        run(deeds.nothing, (), {})


# An interrupt is for the call, which may take its time, however often it comes; it kills once a line has said so.

SOON = 0.3 * SLACK


@pytest.fixture
def offering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offer soon to kill a call that has not ended; one that saves takes longer than that."""
    monkeypatch.setattr(calls, "PATIENCE", SOON)


def save(mark: str) -> str:
    Path(mark).with_name("saving").touch()
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


def catch_late(mark: str) -> str:
    try:
        catch(mark)
    except KeyboardInterrupt:
        return "saved less"
    return "never"


def be_cancelled(mark: str) -> str:
    async def work() -> str:
        try:
            Path(mark).touch()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return await asyncio.to_thread(save, mark)
        return "never"

    async def main() -> str:
        task = asyncio.ensure_future(work())
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
        return await task

    return asyncio.run(main())


def go_on(mark: str) -> None:
    while True:
        try:
            work(mark)
        except KeyboardInterrupt:
            Path(mark).with_name("went on").touch()


class SlowToSend:
    """What takes its time to be pickled."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[type, tuple[str]]:
        Path(self.mark).touch()
        time.sleep(3 * SOON)
        return str, ("made in hours",)


def give_slowly(mark: str) -> str:
    wire_send = wire.send

    def send(*args: Any) -> None:
        wire.send = wire_send
        Path(mark).touch()
        time.sleep(3 * SOON)
        wire_send(*args)

    wire.send = send  # type: ignore[assignment]
    return "made in hours"


def interrupts(function: Callable[[str], object], mark: Path, *, again: str = "") -> object:
    """Return what a call returns that is interrupted once it works, and again when that mark is there."""
    one, _ = call(function, str(mark))

    def interrupt() -> None:
        for name in [mark.name, *([again] if again else [])]:
            while not mark.with_name(name).exists():
                time.sleep(0.01)
            one.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        return one.run(prepare()).value()
    finally:
        thread.join()


@pytest.mark.usefixtures("offering")
@pytest.mark.parametrize(
    ("function", "again", "value"),
    [
        *((heeds, "", "saved") for heeds in (catch, be_cancelled)),
        *((sends, "", "made in hours") for sends in (SlowToSend, give_slowly)),
        (catch_late, "saving", "saved less"),
    ],
)
def test_a_call_that_heeds_an_interrupt_may_take_its_time_and_loses_nothing_to_the_next(
    function: Callable[[str], object], again: str, value: str, tmp_path: Path
) -> None:
    assert interrupts(function, tmp_path / "mark", again=again) == value


@pytest.mark.usefixtures("offering")
def test_a_call_that_goes_on_is_interrupted_again_until_a_line_has_said_that_the_next_kills(tmp_path: Path) -> None:
    one, paper = call(go_on, str(tmp_path / "mark"))
    said: list[str] = []

    def interrupt() -> None:
        for _ in range(3):
            until((tmp_path / "mark").exists)
            (tmp_path / "mark").unlink()  # it is made again each time that the interrupt is heard
            one.interrupt()
        said.append(paper.text["stderr"])
        until(lambda: "The next interrupt kills it." in paper.text["stderr"])
        one.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt, match="did not end, and was killed"):
        one.run(prepare())
    thread.join()

    assert said == [""]


@pytest.mark.usefixtures("offering")
def test_a_call_that_heeds_its_timeout_may_save_what_it_has(tmp_path: Path) -> None:
    one, paper = call(catch, str(tmp_path / "mark"), timeout=8 * SOON)
    answer = one.run(prepare())

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


def system(root: Path, *, vmstat: int | None = None, events: int | None = None) -> int | None:
    """Return the kills on a machine whose files say so."""
    proc, cgroups = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (cgroups / "user/session").mkdir(parents=True)
    (proc / "self/cgroup").write_text("3:cpu:/\n0::/user/session\n")
    if vmstat is not None:
        (proc / "vmstat").write_text(f"pgfault 7\noom_kill {vmstat}\nswap_ra 1\n")
    if events is not None:
        (cgroups / "user/session/memory.events").write_text(f"oom 9\noom_kill {events}\noom_group_kill 0\n")
    return host_memory.kills(proc, cgroups)


@pytest.mark.parametrize(
    ("vmstat", "events", "kills"), [(None, None, None), (2, None, 2), (None, 3, 3), (2, 3, 5), (0, 0, 0)]
)
def test_kills_are_counted_where_they_are_told(
    tmp_path: Path, vmstat: int | None, events: int | None, kills: int | None
) -> None:
    assert system(tmp_path, vmstat=vmstat, events=events) == kills
    assert host_memory.kills(tmp_path / "nowhere", tmp_path / "nowhere") is None
    assert (host_memory.kills() or 0) >= 0  # of this machine
