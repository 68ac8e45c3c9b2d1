"""A call is set up as its caller is, its output arrives whole and in time, and it leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.isolate import deeds
from tests.isolate.rig import Paper, belongings, beside, call, prepare, run
from tests.sizes import MIB
from tests.waiting import until
from tfgpu_magic.errors import WorkerDied
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER

pytestmark = pytest.mark.usefixtures("light")


def printed(function: Any, *args: Any) -> Paper:
    one, paper = call(function, *args)
    one.run_process(prepare()).value()
    return paper


def test_everything_that_prints_is_heard() -> None:
    paper = printed(deeds.print_everywhere)

    assert paper.text == {
        "stdout": "python\nc\nshell\nkept by python",
        "stderr": "python's error\ndescriptor\nshell error\n",
    }


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([b"one", b"two", b"three"], "onetwothree"),
        (["ä".encode()[:1], "ä".encode()[1:] + "€".encode()[:2], "€".encode()[2:]], "ä€"),
        ([b"a\xffb", b"\xe2\x82"], "a\ufffdb\ufffd"),
    ],
    ids=["text", "characters that are cut by a read", "no text"],
)
def test_output_arrives_while_the_call_runs(pieces: list[bytes], text: str) -> None:
    paper = printed(deeds.print_raw, pieces)

    assert paper.text["stdout"] == text
    assert paper.pieces >= 2


@pytest.mark.parametrize(
    ("flood", "lines"), [(deeds.flood_lines, 200_000), (deeds.flood_one_line, 0), (deeds.flood_while_signals_come, 0)]
)
def test_a_flood_arrives_whole_and_in_pieces(flood: Callable[[int], None], lines: int) -> None:
    paper = printed(flood, 20_000_000)

    assert (paper.counts["x"], paper.counts["\n"]) == (20_000_000 - lines, lines)
    assert paper.longest <= MIB


def test_a_call_that_closes_its_output_answers() -> None:
    assert run(deeds.close_output, (), {}) == "done"


def test_a_call_is_where_its_caller_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_THE_CALLER", "ü\n=")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["program", "-x"])

    def place() -> tuple[Any, ...]:
        return str(Path.cwd()), os.environ["OF_THE_CALLER"], sys.path[0], sys.argv, sys.stdin.read()

    assert run(place, (), {}) == (str(tmp_path), "ü\n=", str(tmp_path), ["program", "-x"], "")


def test_a_call_has_no_descriptor_that_is_not_its_own(tmp_path: Path) -> None:
    def descriptors() -> list[str]:
        found = []
        for number in range(1000):
            with contextlib.suppress(OSError):
                found.append(str(Path(f"/proc/self/fd/{number}").readlink()).partition(":")[0])
        return sorted(found)

    marks = [tmp_path / str(number) for number in range(3)]
    with beside(*marks):
        found = run(descriptors, (), {})

    tracker = resource_tracker._resource_tracker._fd  # type: ignore[attr-defined]
    shared = ["pipe"] * (tracker is not None)  # of this process's resource tracker, if there is one
    assert found == ["/dev/null", *shared, "pipe", "pipe", "pipe", "socket"]


def test_when_memory_runs_out_a_call_dies_before_its_caller() -> None:
    def badness() -> int:
        return int(Path("/proc/self/oom_score").read_text())

    assert run(badness, (), {}) > badness() + 300


def test_processes_that_a_call_leaves_behind_are_gone_also_while_other_calls_run(tmp_path: Path) -> None:
    with beside(tmp_path / "go") as (other,):
        pids = run(deeds.leave_processes, (str(tmp_path / "mark"),), {})

        assert [pid for pid in pids if psutil.pid_exists(pid)] == []
        assert other.is_alive()


def test_a_fork_that_comes_to_the_end_of_the_call_does_not_answer_for_it() -> None:
    def fork() -> str:
        child = os.fork()
        if child == 0:
            return "the fork"
        os.waitpid(child, 0)
        os.kill(os.getpid(), signal.SIGKILL)
        return "the call"

    with pytest.raises(WorkerDied):
        run(fork, (), {})


def test_two_hundred_calls_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = psutil.Process(FORK_SERVER.process().pid)
    array = np.zeros(4 * MIB, np.uint8)

    def exact() -> tuple[Any, ...]:
        opened, threads = belongings()
        return set(opened.items()), threads, server.num_fds(), server.num_threads(), set(tmp_path.iterdir())

    def at_rest() -> tuple[Any, ...]:
        """Return what there is, once the fork server has closed its end of the last call; nothing before."""
        found = exact()
        time.sleep(0.2)
        return found if not server.children() and found == exact() else ()

    def some(count: int) -> tuple[tuple[Any, ...], tuple[int, int, int]]:
        """Make calls; return what this process and the fork server have then, and memory, which may grow a little."""
        for number in range(count):
            value = array if number % 10 == 0 else number
            np.testing.assert_array_equal(run(deeds.echo, (value,), {}), value)
        rest = until(at_rest)
        maps = len(Path("/proc/self/maps").read_text().splitlines())
        return rest, (maps, psutil.Process().memory_info().rss, server.memory_info().rss)

    before, first = some(80)  # which make what the allocator keeps for ever
    between, second = some(100)
    after, third = some(100)
    grown = [min(b - a, c - b) for a, b, c in zip(first, second, third, strict=True)]  # what leaks grows each time

    for now in (between, after):  # what earlier tests have left may end meanwhile
        assert all(one <= was for one, was in zip(now, before, strict=True)), (before, now)
    assert all(now < most for now, most in zip(grown, (25, 2 * MIB, 2 * MIB), strict=True)), grown
