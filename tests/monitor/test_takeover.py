"""A process that looks first and finds no driver blinds none that finds one; where there is none, none fights."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.monitor.boards import collectors
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.monitor import takeover
from tfgpu_magic.monitor.board import Look, Message
from tfgpu_magic.monitor.driver_sleep import ASLEEP
from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.snapshot import Parser, Snapshot
from tfgpu_magic.monitor.takeover import BLIND_FOR, FIRST_RETRY, LONGEST_RETRY, Doubt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfgpu_magic.monitor.directory import BoardDirectory
    from tfgpu_magic.simgpu import Machine

LOOKER = """
import os, select, sys
from tfgpu_magic.monitor import takeover
from tfgpu_magic.monitor.live import Live
takeover.BLIND_FOR, takeover.FIRST_RETRY = 0.3, 0.6
if sys.argv[1] == "blind":
    del os.environ["LD_LIBRARY_PATH"]  # where the library is
with Live(linger=3) as live:
    print(live.wait(30).snapshot.error, flush=True)
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        error = live.look().snapshot.error
    print(error, flush=True)
"""
"""Says what it sees at first, and in the end."""


@pytest.fixture
def gpus() -> str:
    return "2x16GiB"


@contextmanager
def board_reader(how: str) -> Iterator[list[str]]:
    """Have another process look until the block ends, and give what it says."""
    command = [sys.executable, "-c", LOOKER, how]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    said = [process.stdout.readline().strip()]
    yield said
    said += process.communicate("", timeout=240)[0].splitlines()


def oldest(machine: Machine) -> psutil.Process:
    """Return the collector, and none that tries whether it sees more."""
    return min(collectors(machine), key=lambda process: process.create_time())


def test_one_that_finds_no_library_gives_way_to_one_that_does_and_sees_the_gpus_too(
    machine: Machine, machine_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "BLIND_FOR", 0.3)
    neighbour = machine.add_neighbour("9GiB@1")
    with board_reader("blind") as said:
        first = oldest(machine)
        with Live(linger=3) as live:
            seen = until(live.look, lambda seen: bool(seen.snapshot.processes), seconds=20)
            until(live.look, lambda _: first not in collectors(machine) and len(collectors(machine)) == 1, seconds=10)
            second = oldest(machine)
            until(live.look, lambda now: now.message.sequence > seen.message.sequence + 3, seconds=20)
            stays = collectors(machine)

    assert said[0].startswith("No NVIDIA driver was found")
    assert said[1] == "None"
    assert [(row.gpu, row.pid, row.held) for row in seen.snapshot.processes] == [("1", neighbour.pid, 9 * GIB)]
    assert stays == [second]


def test_where_there_is_no_driver_the_first_collector_stays_whoever_else_tries(
    machine: Machine, machine_folder: Path
) -> None:
    machine.remove_driver()
    with board_reader("sees") as first, board_reader("blind") as second:
        stays = oldest(machine)
        tried: set[int] = set()

        def others() -> set[int]:
            tried.update({process.pid for process in collectors(machine)} - {stays.pid})
            return tried

        until(others, lambda tried: len(tried) >= 3, every=0.01)

        assert stays in collectors(machine)
    assert all(error != "None" for error in (*first, *second))


def test_where_nothing_was_read_yet_the_one_that_reads_is_let_alone(here: BoardDirectory) -> None:
    def sees() -> bool:
        raise AssertionError("the driver is asked")

    assert takeover.take_over(here, sees) is None


def look(error: str | None, *, age: float | None = 1.0, stale: float | None = None) -> Look:
    return Look(Message(1, Snapshot(time=1e9, error=error).to_json(), Parser()), age, stale)


def test_who_sees_an_error_tries_after_seconds_and_then_ever_more_rarely() -> None:
    doubt = Doubt()
    tries = [now for now in range(4000) if doubt.tries(look("No driver"), float(now))]

    assert tries[0] == BLIND_FOR
    pauses = [later - before for before, later in pairwise(tries)]
    assert pauses == [FIRST_RETRY, 120, 240, 480, *3 * [LONGEST_RETRY]]


@pytest.mark.parametrize("seen", [look(None), look(ASLEEP), look("error", stale=1.0), look("none yet", age=None)])
def test_nobody_tries_who_sees_gpus_or_gpus_that_sleep_or_nothing_new(seen: Look) -> None:
    doubt = Doubt()

    assert not any(doubt.tries(seen, float(now)) for now in range(100))


def test_an_error_that_comes_back_is_tried_anew() -> None:
    doubt = Doubt()
    before = [now for now in range(100) if doubt.tries(look("No driver"), float(now))]
    doubt.tries(look(None), 100.0)
    after = [now for now in range(130, 200) if doubt.tries(look("No driver"), float(now))]

    assert before == [3, 63]
    assert after == [133, 193]
