"""Submitted calls: what they were given, how they are stopped, and what they do to the end of their process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.isolate import deeds
from tests.processes import QUIET, runs
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic import IsolatedExecutor, PolicyError, Unpicklable, WorkerDied, isolated
from tfgpu_magic.isolate.values import copies, pickling

LOCK = threading.Lock()


@pytest.mark.usefixtures("light")
def test_a_call_that_waits_has_its_arguments_as_they_were_when_it_was_submitted(tmp_path: Path) -> None:
    options, array = {"rate": 0}, np.zeros(2**18)
    with IsolatedExecutor(1, gpus=0) as executor:
        executor.submit(deeds.wait_for, tmp_path / "go")
        futures = []
        for number in range(1, 4):
            options["rate"] = number
            array += 1
            futures.append(executor.submit(lambda given, values: (given["rate"], values.sum()), options, array))
        (tmp_path / "go").touch()

        assert [future.result() for future in futures] == [(n, n * 2**18) for n in (1, 2, 3)]


def test_an_array_that_many_calls_read_is_copied_once() -> None:
    array = np.arange(2**18)
    one, other = (copies.copy_for_later(pickling.dump((number, array))) for number in range(2))
    array += 1
    later = copies.copy_for_later(pickling.dump(array))

    assert one.buffers[0] is other.buffers[0]
    assert later.buffers[0] is not one.buffers[0]
    np.testing.assert_array_equal(array, pickling.load(later.parts))
    np.testing.assert_array_equal(array - 1, pickling.load(one.parts)[1])


@pytest.mark.usefixtures("light")
def test_a_submitted_call_can_be_stopped_and_the_executor_goes_on(tmp_path: Path) -> None:
    with IsolatedExecutor(1, gpus=0) as executor:
        runs, waits = executor.submit(deeds.wait_for, tmp_path / "never"), executor.submit(abs, -1)
        until(lambda: deeds.begun(tmp_path / "never"))
        runs.stop()
        waits.stop()

        with pytest.raises(WorkerDied, match="The call was stopped") as caught:
            runs.result(30 * SLACK)
        assert caught.value.stopped
        assert waits.cancelled()
        assert executor.submit(abs, -2).result(30 * SLACK) == 2
        with pytest.raises(WorkerDied, match="SIGTERM") as caught:
            executor.submit(deeds.kill_itself, signal.SIGTERM).result(30 * SLACK)
        assert not caught.value.stopped  # but it died by itself


@pytest.mark.parametrize("how", ["kill_workers", "terminate_workers"])
@pytest.mark.usefixtures("light")
def test_ending_the_workers_leaves_nothing_running(how: str, tmp_path: Path) -> None:
    executor = IsolatedExecutor(2, gpus=0)
    futures = [executor.submit(deeds.wait_for, tmp_path / str(number)) for number in range(4)]
    until(lambda: deeds.begun(tmp_path / "0") and deeds.begun(tmp_path / "1"))
    getattr(executor, how)()
    stand = ["cancelled" if future.cancelled() else type(future.exception()).__name__ for future in futures]

    assert stand == ["WorkerDied", "WorkerDied", "cancelled", "cancelled"]
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(pow, 2, 3)


started = ""


def start(text: str) -> None:
    global started
    assert not started, "a process for each call"
    started = text


@pytest.mark.usefixtures("light")
def test_an_initializer_runs_in_each_process() -> None:
    def found() -> str:
        from tests.isolate.test_future import started

        return started

    with IsolatedExecutor(2, gpus=0, initializer=start, initargs=("licence",)) as executor:
        assert [future.result() for future in [executor.submit(found) for _ in range(3)]] == ["licence"] * 3
    with IsolatedExecutor(1, gpus=0, initializer=fails) as executor, pytest.raises(ValueError, match="own"):
        executor.submit(found).result()


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "said"),
    [
        (repr, (LOCK,), {}, r"^argument 1 of repr cannot be sent to another process: a _thread\.lock cannot"),
        (deeds.echo, (), {"value": {"k": LOCK}}, r"in argument 'value' of echo\['k'\]"),
        (lambda: LOCK, (), {}, "<lambda> cannot be sent"),
    ],
)
def test_what_cannot_be_sent_is_named_by_the_future(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    with IsolatedExecutor(1, gpus=0) as executor, pytest.raises(Unpicklable, match=said):
        executor.submit(function, *args, **kwargs).result()


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"max_workers": 0}, ValueError, "max_workers must be greater than 0"),
        ({"gpus": "all"}, PolicyError, "gpus='all' is no number of GPUs"),
        ({"gpus": True}, PolicyError, "gpus=True is no number of GPUs"),
        ({"timeout": -1}, PolicyError, "-1 cannot be waited for"),
        ({"timeout": "10"}, PolicyError, "10 of what"),
        ({"timeout": "10 minutes"}, PolicyError, "Write one as 90s, 10m"),
        ({"policy": "limt 1GiB"}, PolicyError, "Did you mean 'limit'"),
        ({"policy": "pick 2"}, PolicyError, "as many as gpus= says"),
        ({"initializer": 3}, TypeError, "initializer must be a callable"),
    ],
)
def test_what_makes_no_sense_is_an_error_at_construction(
    options: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        IsolatedExecutor(**options)


def fails() -> None:
    raise ValueError("of the call's own")


def test_the_traceback_of_a_call_has_no_frames_of_ours(quick: None) -> None:
    with IsolatedExecutor(1, gpus=0) as executor, pytest.raises(ValueError, match="own") as submitted:
        executor.submit(fails).result()
    with pytest.raises(ValueError, match="own") as called:
        isolated(fails)()

    ours = f"{os.sep}tfgpu_magic{os.sep}isolate{os.sep}"
    frames = [traceback.extract_tb(error.value.__traceback__) for error in (submitted, called)]
    assert [sum(ours in frame.filename for frame in found) for found in frames] == [0, 1]  # the one that was called


# What holds up the end of a process


def program(script: Sequence[Path]) -> Any:
    """Start a program of Python's, whose output is read."""
    command = [sys.executable, *map(str, script)]
    return subprocess.Popen(
        command, env={**os.environ, **QUIET}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


AT_THE_END = """
import sys, time
from tfgpu_magic import IsolatedExecutor
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER

FORK_SERVER.preload = ()

def work():
    print("begun", flush=True)
    time.sleep(60)

if __name__ == "__main__":
    executor = IsolatedExecutor(1, gpus=0)
    future = executor.submit(work)
    {last}
"""


@pytest.mark.parametrize(
    "last", ["future.result()", "time.sleep(60)", "pass", "with executor: list(executor.map(time.sleep, [60]))"]
)
def test_ctrl_c_ends_a_script_and_its_submitted_calls(tmp_path: Path, last: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(AT_THE_END.format(last=last))
    with program([script]) as process:
        assert process.stdout.readline() == "begun\n"
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=40)  # seconds; the call would take 60

    assert "KeyboardInterrupt" in err
    until(lambda: not any(map(runs, family)))


def test_a_process_that_was_forked_waits_for_no_call_of_its_parent(quick: None, tmp_path: Path) -> None:
    with IsolatedExecutor(1, gpus=0) as executor:
        executor.submit(deeds.wait_for, tmp_path / "go")
        until(lambda: deeds.begun(tmp_path / "go"))
        child = os.fork()
        if child == 0:
            try:
                threading._shutdown()  # type: ignore[attr-defined]  # as its end does
            finally:
                os._exit(0)
        gone = until(lambda: os.waitpid(child, os.WNOHANG)[0], seconds=20)
        (tmp_path / "go").touch()

    assert gone == child


SCRIPT = """
import atexit, os, sys, time
from pathlib import Path
from tfgpu_magic import IsolatedExecutor
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER

FORK_SERVER.preload = ()

@atexit.register
def too_late():
    try:
        executor.submit(print)
    except RuntimeError as error:
        print(str(error)[:27], flush=True)

def slow(begun, go):
    Path(begun).touch()
    while not Path(go).exists():
        time.sleep(0.01)

def late():
    time.sleep(0.5)  # the script comes to its end meanwhile
    os.write(1, b"late\\n")

if __name__ == "__main__":
    executor, other = IsolatedExecutor(2, gpus=0), IsolatedExecutor(1, gpus=0)
    called = executor.submit(slow, *sys.argv[1:])
    try:
        called.result()
    except KeyboardInterrupt:
        print("interrupted", called.running(), flush=True)
        print(called.result(), flush=True)
    executor.submit(late)
    other.submit(late)
    other.shutdown(wait=False)
"""


def test_in_a_script_it_is_an_executor_as_any_other(tmp_path: Path) -> None:
    script, begun, go = tmp_path / "script.py", tmp_path / "begun", tmp_path / "go"
    script.write_text(SCRIPT)
    with program([script, begun, go]) as process:
        until(begun.exists)
        process.send_signal(signal.SIGINT)
        interrupted = process.stdout.readline()
        go.touch()
        out, err = process.communicate(timeout=240)

    assert interrupted == "interrupted True\n"
    # The call goes on, and so does what is submitted at the end; at the very end nothing can be any more.
    assert out == "None\nlate\nlate\ncannot schedule new futures\n"
    assert (err, process.returncode) == ("", 0)


def test_ctrl_c_while_a_block_waits_for_its_calls_is_for_them_too(light: None) -> None:
    executor = IsolatedExecutor(1, gpus=0)

    def interrupt() -> None:
        until(lambda: executor._closed)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt), executor:  # noqa: PT012  # the block's end is what is tested
        future = executor.submit(time.sleep, 60)
        thread.start()
    thread.join()

    assert isinstance(future.exception(timeout=240), WorkerDied)
