"""What a policy leaves for this user's other processes: the lock is free, and room that it has not found is wanted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import PATIENCE
from tfgpu_magic.engine import engine, other_processes
from tfgpu_magic.errors import Refused
from tfgpu_magic.machine.see import look
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.simgpu import Machine

LOCK = """
import fcntl, os
from tfgpu_magic.engine.other_processes import LOCK
from tfgpu_magic.machine.board.directory import BoardDirectory
try:
    fcntl.lockf(BoardDirectory().open(LOCK, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free")
except BlockingIOError:
    print("held")
"""
WANTED = "from tfgpu_magic.machine.board import wanted; print(*wanted.by_others())"


@pytest.fixture(autouse=True)
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))


def elsewhere(code: str) -> str:
    """Return what another process of this user prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return done.stdout.strip()


def test_once_a_limit_is_settled_the_lock_is_free() -> None:
    with other_processes.settling(parse("limit 1GiB")):
        assert elsewhere(LOCK) == "held"

    assert elsewhere(LOCK) == "free"


@pytest.mark.parametrize(
    ("words", "is_wanted"),
    [
        ("limit 4GiB", True),
        ("limit 7.7GiB", False),  # the driver keeps some of the 8 GiB for itself: no other process is in the way
    ],
)
def test_room_that_others_hold_is_wanted_where_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, words: str, is_wanted: bool
) -> None:
    with Machine.create("1x8GiB") as machine:
        for name, value in machine.environ().items():
            monkeypatch.setenv(name, value)
        machine.add_neighbour("6GiB@0")
        with pytest.raises(Refused):
            engine.apply(words)

        assert elsewhere(WANTED) == (look().gpus[0].uuid if is_wanted else "")
