"""A call's process ends as a program does: what it has begun to write is written, and nothing of it stays."""

from __future__ import annotations

import atexit
import contextlib
import gzip
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.isolate import deeds
from tests.isolate.rig import call, prepare, run
from tests.slack import SLACK
from tfgpu_magic.errors import TimedOut
from tfgpu_magic.isolate import watch
from tfgpu_magic.isolate.process import forkserver_client
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER

pytestmark = pytest.mark.usefixtures("light")

kept: list[Any] = []


def keep(*things: object) -> None:
    """Keep objects as a module does that goes on using them."""
    kept.extend(things)


def save_later(path: Path) -> None:
    time.sleep(0.3)  # the call has answered meanwhile, and nothing else would keep its process
    path.write_text("saved")


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_call_has_begun_is_brought_to_its_end(tmp_path: Path, fails: bool) -> None:
    def begin() -> None:
        text, binary = (tmp_path / "text").open("w"), (tmp_path / "binary").open("wb")
        text.write("eight ch")
        binary.write(b"eight by")
        keep(text, binary, tempfile.TemporaryDirectory(dir=tmp_path, prefix="temporary"))
        packed = sys.modules["__main__"].packed = gzip.open(tmp_path / "packed", "wt")  # type: ignore[attr-defined]  # noqa: SIM115
        packed.write("eight ch")
        atexit.register((tmp_path / "done").touch)
        threading.Thread(target=save_later, args=(tmp_path / "thread",)).start()
        ThreadPoolExecutor(1).submit(save_later, tmp_path / "pool")
        if fails:
            raise ValueError("of the call's own")

    one, paper = call(begin)
    with pytest.raises(ValueError, match="own") if fails else contextlib.nullcontext():
        one.run_process(prepare()).value()

    with gzip.open(tmp_path / "packed", "rt") as packed:
        assert packed.read() == "eight ch"
    saved = ["text", "binary", "thread", "pool", "done"]
    assert [(tmp_path / name).read_text() for name in saved] == ["eight ch", "eight by", "saved", "saved", ""]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*saved, "packed"])
    assert paper.text["stderr"] == ""


def left(names: list[str]) -> list[str]:
    return [name for name in names if Path("/dev/shm", name).exists()]


@pytest.fixture
def no_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have calls from a process that has used no shared memory: the tracker of one that has goes along with them."""
    monkeypatch.setattr(forkserver_client, "_resource_tracker", list)


@pytest.mark.usefixtures("no_tracker")
@pytest.mark.parametrize("timeout", [None, 2.0 * SLACK])
def test_shared_memory_that_a_call_has_made_and_not_freed_is_gone_however_it_ends(
    timeout: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "GRACE", 0.3)

    def make() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        made = [SharedMemory(create=True, size=1) for _ in range(500)]
        keep(made)
        (tmp_path / "names").write_text(" ".join(memory.name for memory in made))
        time.sleep(600 if timeout else 0)

    with contextlib.nullcontext() if timeout is None else pytest.raises(TimedOut):
        call(make, timeout=timeout)[0].run_process(prepare())

    assert left((tmp_path / "names").read_text().split()) == []


def test_a_process_that_a_call_leaves_behind_may_tidy_up(tmp_path: Path) -> None:
    def leave() -> None:
        script = f"trap 'touch {tmp_path}/tidy; exit' TERM; touch {tmp_path}/there; while :; do sleep 0.01; done"
        keep(subprocess.Popen(["sh", "-c", script]))
        while not (tmp_path / "there").exists():
            time.sleep(0.01)

    run(leave, (), {})

    assert (tmp_path / "tidy").exists()


def test_one_that_does_not_heed_is_killed() -> None:
    def leave() -> list[int]:
        script = "trap '' TERM; (trap '' TERM; sleep 600) & sleep 600"
        deaf = psutil.Popen(["sh", "-c", script], start_new_session=True)
        # Once they sleep, all of them are there, and none of them hears.
        while len(asleep := [one.pid for one in deaf.children(recursive=True) if one.name() == "sleep"]) < 2:
            time.sleep(0.01)
        return [deaf.pid, *asleep]

    pids = run(leave, (), {})

    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_what_cannot_be_killed_holds_up_no_later_call(tmp_path: Path) -> None:
    """As a process that hangs in a driver: the fork server's signals do not reach it."""
    FORK_SERVER.stop()
    FORK_SERVER.preload, before = (*FORK_SERVER.preload, "tests.isolate.deathless"), FORK_SERVER.preload
    try:
        *_, apart, _ = run(deeds.leave_processes, (str(tmp_path / "mark"),), {})
        begin = time.monotonic()

        assert [run(deeds.nothing, (), {}) for _ in range(2)] == [1, 1]
        assert time.monotonic() - begin < 4 * SLACK
        assert psutil.pid_exists(apart)
        os.kill(apart, signal.SIGKILL)
    finally:
        FORK_SERVER.preload = before
        FORK_SERVER.stop()
