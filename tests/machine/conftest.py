"""A simulated machine for the children of this process, which is where every look happens, and boards to look at."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.machine.boards import PATIENCE, end_collectors
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.machine import collector_start, see
from tfgpu_magic.machine.board import directory
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.snapshot_file import SnapshotReader, SnapshotWriter
from tfgpu_magic.machine.see import Watch
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def gpus() -> str:
    """The machine's GPUs; tests parametrize it where they need others."""
    return "2x16GiB"


@pytest.fixture
def machine(gpus: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with Machine.create(gpus) as machine:
        for name, value in machine.environ().items():
            monkeypatch.setenv(name, value)
        yield machine


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a board that no collector writes to."""
    monkeypatch.delenv("TFGPU_SIMGPU", raising=False)
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    return tmp_path / "board"


@pytest.fixture
def here(folder: Path) -> Iterator[BoardDirectory]:
    with BoardDirectory() as here:
        yield here


@pytest.fixture
def writer(here: BoardDirectory) -> SnapshotWriter:
    return SnapshotWriter(here)


@pytest.fixture
def reader(here: BoardDirectory) -> SnapshotReader:
    return SnapshotReader(here)


@pytest.fixture
def machine_folder(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The board's directory; whatever collector the test has left is ended."""
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    yield tmp_path / "board"
    end_collectors(machine)


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of 2 MB, which the board's directory is on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", disk], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(disk / "board"))
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system's folders for all users, which only this test has; no directory is named."""
    monkeypatch.delenv("TFGPU_MAGIC_DIR", raising=False)
    for name in ("tmp", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(directory, "_TEMPORARY", tmp_path / "tmp")
    monkeypatch.setattr("pwd.getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path / "home")))
    return tmp_path


@pytest.fixture
def live(machine_folder: Path) -> Iterator[Watch]:
    with Watch(linger=3, patience=PATIENCE) as live:
        yield live


@pytest.fixture
def own_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a test wait for no look of another one, and end only when its own have left no process."""
    monkeypatch.setattr(collector_start, "latest", None)
    monkeypatch.setattr(see, "_late", [])
    yield
    until(lambda: not collector_start.is_pending())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call a driver hung that takes longer than a second."""
    monkeypatch.setattr(collector_start, "READING_TIMEOUT", 1.0 * SLACK)
    monkeypatch.setattr(see, "READING_TIMEOUT", 1.0 * SLACK)
    monkeypatch.setattr(see, "DRIVER_TIMEOUT", 1.0 * SLACK)
