"""The board: what is published is seen whole or not at all, and nobody else's directory is ever trusted."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import resource
import stat
import subprocess
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor import board, history, place
from tfgpu_magic.monitor.board import BOARD, LOCK, Reader, Writer
from tfgpu_magic.monitor.place import Place, directory
from tfgpu_magic.monitor.snapshot import Gpu, Process, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 2**30
NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away or mount a disk")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TFGPU_SIMGPU", raising=False)
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    return tmp_path / "board"


@pytest.fixture
def here(folder: Path) -> Iterator[Place]:
    with Place() as here:
        yield here


@pytest.fixture
def writer(here: Place) -> Iterator[Writer]:
    writer = Writer(here)
    yield writer
    writer.close()


@pytest.fixture
def reader(here: Place) -> Iterator[Reader]:
    reader = Reader(here)
    yield reader
    reader.close()


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", disk], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(disk / "board"))
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return filler


def snapshot(processes: int = 1, *, at: float = 1e9, used: int | None = GIB, uuid: str = "GPU-0") -> Snapshot:
    rows = tuple(Process(gpu="0", pid=pid, kind="C", held=processes) for pid in range(1, processes + 1))
    return Snapshot(time=at, driver="1", gpus=(Gpu(index=0, uuid=uuid, used=used),), processes=rows, notes=("a",))


# --- messages ---


def test_what_is_published_is_what_is_seen(writer: Writer, reader: Reader) -> None:
    writer.publish(snapshot(3))
    first = reader.look()
    writer.publish(snapshot(4))
    second = reader.look()

    assert (first.snapshot, second.snapshot) == (snapshot(3), snapshot(4))
    assert first.message.sequence < second.message.sequence
    assert second.stale_since is None
    assert 0 <= (second.age or -1) < 60


def test_what_has_not_changed_is_the_same_object(writer: Writer, reader: Reader) -> None:
    writer.publish(snapshot())
    before = reader.look().message
    writer.beat()

    assert reader.look().message is before


def test_processes_that_have_not_changed_are_the_same_objects(writer: Writer, reader: Reader) -> None:
    writer.publish(replace(snapshot(), processes=snapshot(3).processes))
    before = reader.look().snapshot.processes
    changed = (before[0], replace(before[1], held=7), replace(before[2], kind="G"))
    writer.publish(replace(snapshot(), processes=changed))
    after = reader.look().snapshot.processes

    assert after == changed
    assert after[0] is before[0]


def test_before_anything_is_published_that_is_said(writer: Writer, reader: Reader) -> None:
    seen = reader.look()

    assert (seen.age, seen.stale_since, seen.message.sequence) == (None, None, 0)
    assert seen.snapshot.error == "The GPUs are being asked for the first time."


def test_a_writer_that_is_missed_is_said_with_the_time_it_was_last_here(
    writer: Writer, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.publish(snapshot())
    published = time.time()
    monkeypatch.setattr(board, "STALE_AFTER", 0.05)
    time.sleep(0.1)
    stale = reader.look()
    monkeypatch.setattr(board, "STALE_AFTER", 60)
    writer.beat()

    assert stale.stale_since == pytest.approx(published, abs=5)
    assert stale.snapshot == snapshot()
    assert reader.look().stale_since is None


def test_a_writer_that_never_came_is_missed_too(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "STALE_AFTER", 0.0)

    assert reader.look().stale_since == pytest.approx(time.time(), abs=5)


def test_a_new_writer_goes_on_where_one_ended(here: Place, writer: Writer, reader: Reader) -> None:
    writer.publish(snapshot(3))
    before = reader.look().message
    again = Writer(here)

    assert reader.look().message is before
    again.publish(snapshot(4))
    assert reader.look().message.sequence == before.sequence + 1
    again.close()


def test_processes_beyond_the_room_are_left_out_and_that_is_said(
    writer: Writer, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "_ROOM", 4096)
    writer.publish(snapshot(1000))
    seen = reader.look().snapshot

    assert (seen.processes, seen.gpus[0].used, seen.gpus[0].listed) == ((), GIB, False)
    assert "1000 processes, too many to show" in seen.notes[-1]


def _write_without_pause(seconds: float) -> None:
    messages = [snapshot(count) for count in (399, 400)]
    texts = {len(message.processes): message.to_json() for message in messages}
    quick = mock.patch.object(Snapshot, "to_json", lambda message: texts[len(message.processes)])
    with Place() as here, quick:
        writer = Writer(here)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for message in messages:
                writer.publish(message)


def test_no_reader_ever_sees_half_a_message_of_a_writer_without_pause(writer: Writer, reader: Reader) -> None:
    writer.publish(snapshot(399))
    process = multiprocessing.get_context("spawn").Process(target=_write_without_pause, args=(1.5,))
    process.start()
    seen = {}
    while process.is_alive():
        message = reader.look().message
        seen[message.sequence] = message.snapshot
    process.join()

    assert process.exitcode == 0
    assert len(seen) > 20
    assert set(seen.values()) <= {snapshot(399), snapshot(400)}


def test_a_reader_that_the_writer_overtakes_reads_again(
    writer: Writer, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, count = board._read, itertools.count(1)

    def overtaken(fd: int, length: int, offset: int) -> bytes:
        if offset in board._SLOTS and (number := next(count)) <= 3:
            writer.publish(snapshot(10 * number))
            writer.publish(snapshot(10 * number + 1))
        return read(fd, length, offset)

    writer.publish(snapshot(1))
    monkeypatch.setattr(board, "_read", overtaken)

    assert reader.look().snapshot == snapshot(31)


def test_a_writer_that_died_in_the_middle_leaves_the_message_before(
    folder: Path, writer: Writer, reader: Reader
) -> None:
    writer.publish(snapshot(3))
    with (folder / BOARD).open("r+b") as file:
        file.seek(board._SLOTS[(writer._header.sequence + 1) % 2])
        file.write(b"half of a mess")

    assert reader.look().snapshot == snapshot(3)


@pytest.mark.parametrize("content", [b"", b"short", b"\0" * 10_000, b"#!/bin/sh\n" * 1000])
def test_a_file_that_is_no_board_is_replaced(folder: Path, content: bytes) -> None:
    with Place() as here:
        (folder / BOARD).write_bytes(content)
        reader = Reader(here)
        seen = reader.look()
        writer = Writer(here)
        writer.publish(snapshot(3))

        assert seen.message is board.NOTHING
        assert reader.look().snapshot == snapshot(3)
        reader.close()
        writer.close()


@pytest.mark.parametrize("what", ["VERSION", "_boot"])
def test_a_board_of_another_layout_or_boot_is_replaced(
    here: Place, writer: Writer, reader: Reader, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    writer.publish(snapshot(3))
    monkeypatch.setattr(board, what, 77 if what == "VERSION" else lambda: 77)
    seen = reader.look()
    new = Writer(here)

    assert seen.message is board.NOTHING
    assert not writer.is_there()
    new.publish(snapshot(4))
    assert reader.look().snapshot == snapshot(4)
    new.close()


def test_a_truncated_board_harms_nobody_and_is_whole_again_with_the_next_message(
    folder: Path, writer: Writer, reader: Reader
) -> None:
    writer.publish(snapshot(3))
    reader.look()
    os.truncate(folder / BOARD, 0)
    truncated = reader.look()
    writer.publish(snapshot(4))

    assert truncated.snapshot == snapshot(3)
    assert reader.look().snapshot == snapshot(4)


def test_a_writer_knows_when_its_board_is_no_longer_found(folder: Path, here: Place, writer: Writer) -> None:
    assert writer.is_there()
    (folder / BOARD).rename(folder / "elsewhere")
    assert not writer.is_there()


@root_only
def test_no_room_for_a_board_is_said(small_disk: Path) -> None:
    with Place() as here:
        fill(small_disk)
        with pytest.raises(MonitorError, match="No space left"):
            Writer(here)


@root_only
def test_a_board_that_is_there_goes_on_on_a_full_disk(small_disk: Path) -> None:
    with Place() as here:
        writer, reader = Writer(here), Reader(here)
        writer.publish(snapshot(1))
        filler = fill(small_disk)
        writer.publish(snapshot(200))

        assert reader.look().snapshot == snapshot(200)
        with pytest.raises(OSError, match="No space"):
            writer.publish(snapshot(10_000))
        assert reader.look().snapshot == snapshot(200)
        filler.unlink()
        writer.publish(snapshot(10_000))
        assert reader.look().snapshot == snapshot(10_000)
        reader.close()
        writer.close()


def test_a_limit_on_files_is_an_error_in_words(here: Place) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(MonitorError, match="cannot be written to"):
            Writer(here)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_change_of_the_messages_fields_is_another_version() -> None:
    fields = " ".join(name for kind in (Snapshot, Gpu, Process) for name in kind.__slots__)

    assert (board.VERSION, zlib.crc32(fields.encode())) == (1, 3246361248)


# --- history ---


def test_the_last_ten_minutes_are_known_by_the_second_and_an_hour_by_ten(writer: Writer, reader: Reader) -> None:
    for second in range(5000):
        writer.publish(snapshot(at=1e9 + second, used=second))
    past = reader.history()

    assert past.used["GPU-0"] == tuple(round(at - 1e9) for at in past.times)
    assert list(past.times[-600:]) == [1e9 + second for second in range(4400, 5000)]
    coarse = past.times[:-600]
    assert {after - before for before, after in itertools.pairwise(coarse)} == {10}
    assert past.times[-1] - past.times[0] >= 2980  # 50 minutes, of which the last ten are finer


def test_the_past_outlives_the_writer(here: Place, writer: Writer, reader: Reader) -> None:
    for second in range(2000):
        writer.publish(snapshot(at=1e9 + second, used=second))
    before = reader.history()
    again = Writer(here)
    again.publish(snapshot(at=1e9 + 2000, used=2000))
    past = reader.history()

    assert past.times == (*before.times, 1e9 + 2000)
    assert past.used["GPU-0"] == tuple(round(at - 1e9) for at in past.times)
    again.close()


def test_gpus_that_come_and_go_keep_their_past_and_unknown_is_none(writer: Writer, reader: Reader) -> None:
    writer.publish(snapshot(at=1e9, uuid="GPU-a", used=1))
    writer.publish(snapshot(at=1e9 + 1, uuid="GPU-b", used=2))
    writer.publish(snapshot(at=1e9 + 2, uuid="GPU-a", used=None))

    assert reader.history().used == {"GPU-b": (None, 2, None), "GPU-a": (1, None, None)}


def test_points_come_no_faster_than_a_second_and_a_clock_set_back_goes_on(writer: Writer, reader: Reader) -> None:
    for at in (1e9, 1e9 + 0.2, 1e9 + 1, 1e9 - 3600):
        writer.publish(snapshot(at=at))

    assert reader.history().times == (1e9 - 3600, 1e9, 1e9 + 1)


def test_half_a_point_is_no_point(folder: Path, writer: Writer, reader: Reader) -> None:
    for second in range(3):
        writer.publish(snapshot(at=1e9 + second))
    with (folder / BOARD).open("r+b") as file:
        file.seek(board._HISTORY + history._TABLE + 24 + 8)
        file.write(b"!")

    assert reader.history().times == (1e9, 1e9 + 2)


# --- the directory ---


def test_the_directory_is_the_one_that_is_named_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    named = []
    for variables in (["TFGPU_MAGIC_DIR", "XDG_RUNTIME_DIR"], ["XDG_RUNTIME_DIR"], []):
        for name in ("TFGPU_MAGIC_DIR", "XDG_RUNTIME_DIR"):
            monkeypatch.delenv(name, raising=False)
            if name in variables:
                monkeypatch.setenv(name, str(tmp_path))
        named.append(directory())

    assert named == [tmp_path, tmp_path / "tfgpu_magic", tmp_path / f"tfgpu_magic-{os.geteuid()}"]


@root_only
def test_a_runtime_directory_of_another_user_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFGPU_MAGIC_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    os.chown(tmp_path, NOBODY, NOBODY)

    assert directory().parent != tmp_path


def test_it_and_its_files_are_for_nobody_else(folder: Path, writer: Writer) -> None:
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / BOARD)]

    assert modes == [0o700, 0o600]


def test_a_link_is_refused_and_not_followed(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "target")

    with pytest.raises(MonitorError, match="is a link"):
        Place()


def test_a_file_in_its_place_is_refused(folder: Path) -> None:
    folder.write_text("")

    with pytest.raises(MonitorError, match=r"TFGPU_MAGIC_DIR\.$"):
        Place()


def test_one_that_others_may_enter_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)

    with pytest.raises(MonitorError, match=r"open to other users \(mode 755; chmod 700 closes it\)"):
        Place()


@root_only
def test_one_of_another_user_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)

    with pytest.raises(MonitorError, match=f"belongs to another user \\({NOBODY}, and you are 0\\)"):
        Place()


@pytest.mark.parametrize("how", ["link", "hard link", "pipe", "directory"])
def test_a_file_that_is_not_plain_is_refused_at_once(tmp_path: Path, folder: Path, here: Place, how: str) -> None:
    (tmp_path / "precious").write_text("precious")
    if how == "link":
        (folder / LOCK).symlink_to(tmp_path / "precious")
    elif how == "hard link":
        (folder / LOCK).hardlink_to(tmp_path / "precious")
    elif how == "pipe":
        os.mkfifo(folder / LOCK)
    else:
        (folder / LOCK).mkdir()

    with pytest.raises(MonitorError, match=r"Remove it\.$"):
        here.open(LOCK, os.O_RDWR | os.O_CREAT)


@root_only
def test_a_file_of_another_user_is_refused(folder: Path, here: Place) -> None:
    (folder / LOCK).touch()
    os.chown(folder / LOCK, NOBODY, NOBODY)

    with pytest.raises(MonitorError, match="not a plain file of your own"):
        here.open(LOCK, os.O_RDWR)


def test_a_link_at_the_boards_place_is_replaced_and_its_target_left_alone(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    with Place() as here:
        (folder / BOARD).symlink_to(tmp_path / "precious")
        writer = Writer(here)
        writer.publish(snapshot())
        writer.close()

    assert (tmp_path / "precious").read_text() == "precious"
    assert not (folder / BOARD).is_symlink()


def test_a_simulated_machine_has_a_board_of_its_own(
    folder: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.publish(snapshot(3))
    monkeypatch.setenv(place._SIMULATED, "/somewhere/machine")
    with Place() as simulated:
        reader = Reader(simulated)

        assert simulated.simulated
        assert reader.look().message is board.NOTHING


def test_the_variable_of_a_simulated_machine_is_the_simulators() -> None:
    from tfgpu_magic.simgpu import ENVIRONMENT

    assert place._SIMULATED == ENVIRONMENT
