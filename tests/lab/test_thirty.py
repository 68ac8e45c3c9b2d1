"""Thirty users with a hundred open pages, and one service: what it costs the driver, and what they see without it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from tests.lab.hall import FIRST, STREAMS, USERS
from tests.lab.users import root_only
from tests.monitor.boards import fresh
from tests.processes import kill, ours
from tests.waiting import until
from tfgpu_magic.monitor.board import machine_board
from tfgpu_magic.monitor.board.lockfile import PROCESS_NAME
from tfgpu_magic.monitor.board.machine_board import MachineDirectory
from tfgpu_magic.monitor.board.snapshot_file import SnapshotReader
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]
LATER = """
import json, zlib
from tfgpu_magic.lab.service import serve
from tfgpu_magic.model.snapshot import Snapshot
from tfgpu_magic.monitor.board import snapshot_file as board

to_json = Snapshot.to_json

def with_more(snapshot):
    fields = json.loads(to_json(snapshot))
    fields["later"] = fields["gpus"]["later"] = ["what a later version tells"] * len(snapshot.gpus)
    rows = [json.loads(text) for text in fields["processes"]]
    fields["processes"] = [json.dumps({"later": row["pid"], **row}) for row in rows]
    return json.dumps(fields)

def longer(header):
    packed = board._HEADER.pack(board._MAGIC, board.LAYOUT, board._HEADER.size + 5, *header) + b"later"
    return packed + board._CHECK.pack(zlib.crc32(packed))

Snapshot.to_json, board.Header.pack = with_more, longer
serve()
"""
"""The service of a later version of this package, whose board has more of everything."""

Shown = list[list[Any]]
"""What each stream of a user shows, as `Page.shown` returns it."""


class Lab:
    """A machine of many users, and what all of them see."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine = machine
        command = [sys.executable, "-m", "tests.lab.hall", str(folder)]
        self._hall = machine.popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seen(self) -> list[Shown]:
        """Return what each user's streams show now."""
        assert self._hall.stdin
        assert self._hall.stdout
        self._hall.stdin.write("\n")
        self._hall.stdin.flush()
        found: list[Shown] = json.loads(self._hall.stdout.readline())
        return found

    def true(self) -> bool:
        """Tell whether all streams of all users show what the machine knows, and that it is so now."""
        told = [[["", self.told(FIRST + number)]] * streams(number) for number in range(USERS)]
        return self.seen() == told

    def told(self, viewer: int) -> list[list[Any]]:
        """Return the rows that a user is to see: own processes, and of each other user the sum on each GPU."""
        rows: list[list[Any]] = []
        others: Counter[tuple[str, int]] = Counter()
        for one in self._machine.processes():
            user = psutil.Process(one.pid).uids().real
            if user == viewer:
                rows.append([str(one.gpu), "mine", "", one.held])
            else:
                others[str(one.gpu), user] += one.held
        return sorted(rows + [[gpu, "other", str(user), held] for (gpu, user), held in others.items()])

    def all(self, wrong: str) -> bool:
        """Tell whether something is wrong with all streams."""
        return all(one[0] == wrong for shown in self.seen() for one in shown)

    def collectors(self) -> int:
        """Return how many of the users have a collector of their own."""
        return len(ours(self._machine, "tests.lab.hall", PROCESS_NAME))

    def close(self) -> None:
        while left := ours(self._machine, "tests.lab.hall"):  # a fork may be on its way
            kill(*left)
        self._hall.communicate()


def streams(number: int) -> int:
    return STREAMS // USERS + (number < STREAMS % USERS)


def serve(machine: Machine, *how: str) -> subprocess.Popen[bytes]:
    """Start the service, and wait until it has read the GPUs."""
    running = machine.popen([sys.executable, *(how or ("-m", "tfgpu_magic", "collect"))])
    until(lambda: (seen := machine_board.published()) and fresh(seen))
    return running


def end(service: subprocess.Popen[bytes], how: signal.Signals) -> None:
    service.send_signal(how)
    service.communicate()


@root_only
def test_all_see_what_is_true_with_the_service_without_it_and_with_one_of_a_later_version(machine: Machine) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        holders = [machine.add_neighbour(f"1GiB@{number % 2}", user=FIRST + number % 3) for number in range(9)]
        service = serve(machine)
        with closing(Lab(machine, Path(folder))) as lab:
            until(lab.true)

            assert lab.collectors() == 0
            assert calls_of_a_reading(machine) <= 3

            service.send_signal(signal.SIGSTOP)
            until(lambda: lab.all("stale"))
            assert lab.collectors() == 0  # nobody joins one that hangs
            service.send_signal(signal.SIGCONT)
            until(lab.true)

            holders[0].resize("3GiB")
            end(service, signal.SIGKILL)
            until(lambda: lab.collectors() == USERS)
            until(lab.true)

            holders[1].resize("3GiB")
            service = serve(machine, "-c", LATER)
            until(lambda: lab.collectors() == 0, every=0.5)
            until(lab.true)

            assert calls_of_a_reading(machine) <= 3

            holders[2].resize("3GiB")
            end(service, signal.SIGTERM)
            until(lambda: lab.collectors() == USERS)
            until(lab.true)


def calls_of_a_reading(machine: Machine) -> float:
    """Return how often the memory of the two GPUs is asked for in a reading: twice, if the service alone asks.

    It reads again what has moved, and may have read what it has not published.
    """
    with closing(MachineDirectory()) as place, closing(SnapshotReader(place)) as reader:

        def now() -> tuple[int, int]:
            return machine.calls()["nvmlDeviceGetMemoryInfo_v2"], reader.look().message.sequence

        first, before = reader.look().message.sequence, now()[0]  # a pause between two looks makes it less
        after, last = until(now, lambda seen: seen[1] >= first + 5)
    return (after - before) / (last - first + 1)
