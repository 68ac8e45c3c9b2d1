"""The machine's board: read as long as it is true, and not where anybody could have planted it."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.users import as_user, root_only
from tests.waiting import until
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.machine.board import machine_board, snapshot_file
from tfgpu_magic.machine.board.machine_board import MachineBoard, MachineDirectory
from tfgpu_magic.machine.board.snapshot_file import SNAPSHOT, SnapshotWriter
from tfgpu_magic.machine.board.viewers import READING_TIMEOUT
from tfgpu_magic.machine.driver.schedule import ASLEEP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANN, SERVICE = 12345, 991
READING = Snapshot(time=time.time(), gpus=(Gpu(index=0, uuid="GPU-0", used=1),), listed_at=1e9)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The board's directory on a machine that nothing else knows, in a folder that all users can reach, as /run is."""
    with tempfile.TemporaryDirectory() as run:
        monkeypatch.setenv("TFGPU_SIMGPU", f"{run}/machine")
        Path(run).chmod(0o755)
        made = Path(run, "machine.run")
        made.mkdir(mode=0o755)
        yield made


@pytest.fixture
def writer(folder: Path) -> Iterator[SnapshotWriter]:
    place = MachineDirectory()
    writer = SnapshotWriter(place)
    writer.publish(READING, due=READING.time + 3600)
    yield writer
    place.close()


@pytest.fixture
def viewer(writer: SnapshotWriter) -> Iterator[MachineBoard]:
    viewer = MachineBoard()
    yield viewer
    viewer.close()


def seen_now() -> Snapshot | str:
    """Return what a new viewer reads, or why it does not."""
    viewer = MachineBoard()
    seen = viewer.read()
    viewer.close()
    return viewer.why_not or "nothing" if seen is None else seen.snapshot


def later(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the clocks of a reader be so many seconds ahead."""
    clock, now = time.time, time.monotonic
    monkeypatch.setattr(time, "time", lambda: clock() + seconds)
    monkeypatch.setattr(time, "monotonic", lambda: now() + seconds)


def test_where_there_is_none_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFGPU_SIMGPU", str(tmp_path / "machine"))
    monkeypatch.setattr(
        machine_board, "view_id", lambda: pytest.fail("it looks for devices that it needs for no board")
    )
    tmp_path.chmod(0o777)  # as /run is in some containers

    assert seen_now() == "nothing"
    assert not (tmp_path / "machine.run").exists()


@pytest.mark.usefixtures("folder")
def test_a_place_without_a_board_is_no_board_of_others() -> None:
    assert seen_now() == "nothing"


def planted(folder: Path, board: Path, elsewhere: Path) -> dict[str, tuple[Callable[[], object], str]]:
    """Return what may be where a service's board is looked for: how it comes there, and why it is not read."""

    def link(path: Path) -> None:
        path.rename(elsewhere)
        path.symlink_to(elsewhere)

    def pipe() -> None:
        board.unlink()
        os.mkfifo(board, 0o644)

    return {
        "a person's folder": (lambda: os.chown(folder, ANN, ANN), "who is a person and no service"),
        "a link": (lambda: link(folder), "not a directory that can be read"),
        "a writable folder": (lambda: folder.chmod(0o775), "can be written to by others"),
        "a writable parent": (lambda: folder.parent.chmod(0o1777), "can be written to by others than root"),
        "a person's parent": (lambda: os.chown(folder.parent, ANN, ANN), "can be written to by others than root"),
        "a person's board": (lambda: os.chown(board, ANN, ANN), "is not a plain file"),
        "a writable board": (lambda: board.chmod(0o664), "is not a plain file"),
        "a linked board": (lambda: link(board), "cannot be opened"),
        "a pipe": (pipe, "is not a plain file"),
        "a secret board": (lambda: board.chmod(0o600), "cannot be opened"),
    }


@root_only
@pytest.mark.usefixtures("writer")
@pytest.mark.parametrize("how", planted(*[Path()] * 3))
def test_what_a_user_could_have_planted_is_not_read(folder: Path, how: str) -> None:
    plant, why = planted(folder, folder / SNAPSHOT, folder.parent / "elsewhere")[how]
    plant()

    assert why in as_user(ANN + 1, seen_now)


@root_only
def test_a_directory_of_a_service_user_is_read_and_its_files_are_that_users(
    folder: Path, writer: SnapshotWriter
) -> None:
    os.chown(folder, SERVICE, SERVICE)
    theirs = as_user(ANN, seen_now)
    os.chown(folder / SNAPSHOT, SERVICE, SERVICE)

    assert "is not a plain file" in theirs
    assert as_user(ANN, seen_now) == READING


def test_a_directory_that_is_changed_behind_a_viewer_is_no_longer_read(
    folder: Path, viewer: MachineBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_board, "FIND_EVERY", 0.0)
    before = viewer.read()
    folder.chmod(0o777)

    assert before is not None
    assert viewer.read() is None
    assert "can be written to by others" in viewer.why_not


def test_the_board_of_other_pids_or_other_gpus_is_not_read(
    viewer: MachineBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_board, "view_id", lambda: 77)
    monkeypatch.setattr(machine_board, "devices", lambda: ("nvidia0", "nvidiactl"))
    found = viewer.read(), viewer.why_not
    monkeypatch.setattr(
        machine_board, "start_time", lambda _: None
    )  # the service is not among the pids that are seen here

    assert found[0] is None
    assert "is of other GPUs than are seen here (nvidia0, nvidiactl): the unit's DeviceAllow=" in found[1]
    assert viewer.read() is None
    assert "is of other GPUs or other pids than are seen here." in viewer.why_not


def test_a_device_that_comes_later_comes_to_the_service_too(
    writer: SnapshotWriter, viewer: MachineBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_board, "BACK_AFTER", 0.0)
    monkeypatch.setattr(machine_board, "view_id", lambda: 77)
    monkeypatch.setattr(snapshot_file, "view_id", lambda: 77)
    before = viewer.read()
    monkeypatch.setattr(machine_board, "FIND_EVERY", 0.0)
    writer.beat(READING.time + 3600)

    assert before is None
    assert viewer.read() is not None


@pytest.mark.parametrize(
    ("silent", "start", "waits"),
    [
        (60.0, "its", True),  # it hangs
        (60.0, "another's", False),
        (snapshot_file.STALE_AFTER + 0.1, "another's", True),  # a restart of the service starts nobody's collector
        (READING_TIMEOUT, "hidden", True),
        (2 * READING_TIMEOUT, "hidden", False),  # the pid may be another user's, now
        (READING_TIMEOUT, "a zombie's", False),  # which can be read, and has ended
        (READING_TIMEOUT, "nobody's", False),
    ],
)
def test_a_service_that_lives_and_gives_no_sign_is_waited_for_and_one_that_has_ended_is_not(
    viewer: MachineBoard, monkeypatch: pytest.MonkeyPatch, silent: float, start: str, waits: bool
) -> None:
    before = viewer.read()
    assert viewer._reader.published
    later(viewer._reader.published.beat + silent - time.time(), monkeypatch)
    if start != "its":
        monkeypatch.setattr(machine_board, "start_time", lambda _: 5 if start == "another's" else None)
    monkeypatch.setattr(machine_board, "is_alive", lambda _: start != "nobody's")
    monkeypatch.setattr("os.path.exists", lambda _: start != "hidden")
    seen, left = viewer.read(), viewer.last_reading

    assert before is not None
    assert (before.snapshot, before.stale_since, viewer.why_not) == (READING, None, "")
    assert (seen is not None) == waits
    assert seen is None or seen.stale_since is not None
    assert left is not None  # shown until the own collector has read something
    assert left.snapshot == READING


def test_what_a_service_left_is_stale_and_grows_old(viewer: MachineBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer.read()
    monkeypatch.setattr(machine_board, "start_time", lambda _: 5)
    later(60.0, monkeypatch)
    ended, left = viewer.read(), viewer.last_reading
    later(60.0, monkeypatch)
    older = viewer.last_reading

    assert ended is None
    assert left is not None
    assert older is not None
    assert left.stale_since is not None
    assert 60.0 <= (left.age or 0.0) <= (older.age or 0.0) - 60.0


def test_a_service_that_cannot_read_the_gpus_is_left_until_it_can_for_a_while_and_sleeping_gpus_are_no_failure(
    writer: SnapshotWriter, viewer: MachineBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.publish(READING._replace(error=ASLEEP))
    asleep = viewer.read()
    writer.publish(READING._replace(error="NVML: no permission."))
    blind = viewer.read()
    writer.publish(READING)
    at_once = viewer.read()
    monkeypatch.setattr(machine_board, "BACK_AFTER", 0.0)

    assert asleep is not None
    assert (blind, at_once) == (None, None)
    assert until(lambda: seen.snapshot if (seen := viewer.read()) else None) == READING
