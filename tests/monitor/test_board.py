"""The board: what is published is seen whole or not at all, and the past outlives its writer."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import struct
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from tests.monitor.boards import fill, root_only, snapshot
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.board import history, snapshot_file
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.snapshot_file import BOARD, SnapshotReader, Writer
from tfgpu_magic.monitor.live import Live

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.synchronize import Event


def test_what_is_published_is_what_is_seen(writer: Writer, reader: SnapshotReader) -> None:
    writer.publish(snapshot(3))
    first = reader.look()
    writer.beat()
    assert reader.look().message is first.message  # what has not changed is the same object
    writer.publish(snapshot(4))
    second = reader.look()

    assert (first.snapshot, second.snapshot) == (snapshot(3), snapshot(4))
    assert first.message.sequence < second.message.sequence
    assert second.stale_since is None
    assert 0 <= (second.age or -1) < 60


def test_before_anything_is_published_that_is_said_and_a_writer_that_never_came_is_missed(
    writer: Writer, reader: SnapshotReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.time()
    writer.beat()
    seen = reader.look()
    monkeypatch.setattr(snapshot_file, "STALE_AFTER", 0.0)
    missed = reader.look().stale_since or 0

    assert (seen.age, seen.stale_since, seen.message.sequence) == (None, None, 0)
    assert seen.snapshot.error == "The GPUs are being asked for the first time."
    assert begun <= missed <= time.time()


def test_a_writer_that_is_missed_is_said_with_the_time_it_was_last_here(
    writer: Writer, reader: SnapshotReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = time.time()
    writer.publish(snapshot())
    published = time.time()
    monkeypatch.setattr(snapshot_file, "STALE_AFTER", 0.0)
    stale = reader.look()
    monkeypatch.setattr(snapshot_file, "STALE_AFTER", 60)
    writer.beat()

    assert before <= (stale.stale_since or 0) <= published
    assert stale.snapshot == snapshot()
    assert reader.look().stale_since is None


def test_figures_that_are_older_than_was_meant_are_stale_though_the_writer_is_here(
    writer: Writer, reader: SnapshotReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = time.time()
    writer.publish(snapshot())
    read = time.time()
    writer.beat(time.monotonic() + 11)
    rare = reader.look()
    writer.beat(time.monotonic() - 4)  # a reading was due
    late = reader.look()

    assert (rare.stale_since, round(rare.every)) == (None, 11)
    assert before <= (late.stale_since or 0) <= read


def test_what_was_left_is_not_true_again_because_a_writer_is_back(
    here: BoardDirectory, writer: Writer, reader: SnapshotReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.publish(snapshot(3))
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 60)
    again = Writer(here)
    left = reader.look()
    again.publish(snapshot(4))
    read = reader.look()
    again.close()

    assert left.snapshot == snapshot(3)
    assert left.stale_since == pytest.approx(time.time() - 60, abs=30)
    assert (read.snapshot, read.stale_since) == (snapshot(4), None)


def test_a_new_writer_goes_on_where_one_ended(here: BoardDirectory, writer: Writer, reader: SnapshotReader) -> None:
    writer.publish(snapshot(3))
    before = reader.look().message
    again = Writer(here)

    assert reader.look().message is before
    again.publish(snapshot(4))
    assert reader.look().message.sequence == before.sequence + 1
    again.close()


def crowd(counts: Mapping[int | None, int]) -> Snapshot:
    """Return a snapshot of two GPUs with so many processes of each user, the later ones the smaller."""
    rows = [
        Process(str(number % 2), 1 + number, "C", 10**6 - number, uid=user)
        for user, count in counts.items()
        for number in range(count)
    ]
    gpus = (Gpu(index=0, used=GIB), Gpu(index=1, used=GIB))
    return Snapshot(time=1e9, gpus=gpus, processes=tuple(sorted(rows, key=lambda row: row.gpu)), listed_at=1e9)


def held_by_user(snapshot: Snapshot) -> Counter[tuple[str, int | None]]:
    found: Counter[tuple[str, int | None]] = Counter()
    for row in snapshot.processes:
        found[row.gpu, row.uid] += row.held or 0
    return found


def test_who_has_very_many_processes_hides_nobody_elses(writer: Writer, reader: SnapshotReader) -> None:
    published = crowd({1001: 5000, 1002: 300, None: 4500})
    writer.publish(published)
    seen = reader.look().snapshot
    few = [row for row in published.processes if row.uid == 1002]
    together = [row for row in seen.processes if row.pid <= 0]

    assert [row for row in seen.processes if row.uid == 1002] == few
    assert {(row.gpu, row.pid, row.uid) for row in together} == {
        (gpu, pid, user) for gpu in "01" for pid, user in ((0, None), (-1002, 1001))
    }
    assert held_by_user(seen) == held_by_user(published)
    assert 3500 < len(seen.processes) < 4200
    assert [row.gpu for row in seen.processes] == sorted(row.gpu for row in seen.processes)
    assert max(row.held or 0 for row in together) > min(row.held or 0 for row in seen.processes if row.uid == 1001)


def test_processes_with_names_beyond_the_room_are_told_by_their_users(
    writer: Writer, reader: SnapshotReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_file, "_ROOM", 4096)
    writer.publish(crowd({1001: 1000}))
    seen = reader.look().snapshot

    assert [(row.gpu, row.pid) for row in seen.processes] == [("0", -1002), ("1", -1002)]
    with pytest.raises(OSError, match="too many"):
        writer.publish(crowd(dict.fromkeys(range(1000), 1)))
    assert reader.look().snapshot == seen


def _write_without_pause(until_told: Event) -> None:
    messages = [snapshot(count) for count in (399, 400)]
    texts = {len(message.processes): message.to_json() for message in messages}
    quick = mock.patch.object(Snapshot, "to_json", lambda message: texts[len(message.processes)])
    with BoardDirectory() as here, quick:
        writer = Writer(here)
        while not until_told.is_set():
            for message in messages:
                writer.publish(message)


def test_no_reader_ever_sees_half_a_message_of_a_writer_without_pause(writer: Writer, reader: SnapshotReader) -> None:
    writer.publish(snapshot(399))
    context = multiprocessing.get_context("spawn")
    enough = context.Event()
    process = context.Process(target=_write_without_pause, args=(enough,))
    process.start()
    seen = {}

    def look() -> int:
        message = reader.look().message
        seen[message.sequence] = message.snapshot
        return len(seen)

    try:
        until(look, lambda count: count > 200, every=0.0)
    finally:
        enough.set()
        process.join()

    assert process.exitcode == 0
    assert all(one in (snapshot(399), snapshot(400)) for one in seen.values())


def test_a_reader_that_the_writer_overtakes_reads_again(
    writer: Writer, reader: SnapshotReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, count = snapshot_file._read, itertools.count(1)

    def overtaken(fd: int, length: int, offset: int) -> bytes:
        if offset in snapshot_file._SLOTS and (number := next(count)) <= 3:
            writer.publish(snapshot(10 * number))
            writer.publish(snapshot(10 * number + 1))
        return read(fd, length, offset)

    writer.publish(snapshot(1))
    monkeypatch.setattr(snapshot_file, "_read", overtaken)

    assert reader.look().snapshot == snapshot(31)


def test_a_writer_that_died_in_the_middle_leaves_the_message_before(
    folder: Path, here: BoardDirectory, writer: Writer, reader: SnapshotReader
) -> None:
    writer.publish(snapshot(3))
    with (folder / here.name(BOARD)).open("r+b") as file:
        file.seek(snapshot_file._SLOTS[(writer._header.sequence + 1) % 2])
        file.write(b"half of a mess")

    assert reader.look().snapshot == snapshot(3)


@pytest.mark.parametrize("what", ["LAYOUT", "boot", b"", b"short", b"\0" * 10_000, b"#!/bin/sh\n" * 1000])
def test_a_board_of_another_layout_or_boot_and_what_is_no_board_is_replaced(
    folder: Path,
    here: BoardDirectory,
    writer: Writer,
    reader: SnapshotReader,
    monkeypatch: pytest.MonkeyPatch,
    what: str | bytes,
) -> None:
    writer.publish(snapshot(3))
    if isinstance(what, bytes):
        (folder / here.name(BOARD)).unlink()
        (folder / here.name(BOARD)).write_bytes(what)
    else:
        monkeypatch.setattr(snapshot_file, what, 77 if what == "LAYOUT" else lambda: 77)
    seen = reader.look()
    new = Writer(here)

    assert seen.message is snapshot_file.NOTHING
    assert not writer.is_there()
    new.publish(snapshot(4))
    assert reader.look().snapshot == snapshot(4)
    new.close()


def test_a_truncated_board_harms_nobody_and_is_whole_again_with_the_next_message(
    folder: Path, here: BoardDirectory, writer: Writer, reader: SnapshotReader
) -> None:
    writer.publish(snapshot(3))
    reader.look()
    os.truncate(folder / here.name(BOARD), 0)
    truncated = reader.look()
    writer.publish(snapshot(4))

    assert truncated.snapshot == snapshot(3)
    assert reader.look().snapshot == snapshot(4)


def test_a_writer_knows_when_its_board_is_no_longer_found(folder: Path, here: BoardDirectory, writer: Writer) -> None:
    assert writer.is_there()
    (folder / here.name(BOARD)).rename(folder / "elsewhere")
    assert not writer.is_there()


@root_only
def test_no_room_for_a_board_is_said(small_disk: Path) -> None:
    with BoardDirectory() as here:
        fill(small_disk)
        with pytest.raises(MonitorError, match="No space left"):
            Writer(here)


@root_only
def test_a_board_that_is_there_goes_on_on_a_full_disk(small_disk: Path) -> None:
    many = snapshot(4000)
    many = many._replace(processes=tuple(row._replace(cgroup="unit:user-1000.slice") for row in many.processes))
    with BoardDirectory() as here:
        writer, reader = Writer(here), SnapshotReader(here)
        writer.publish(snapshot(1))
        filler = fill(small_disk)
        writer.publish(snapshot(200))

        assert reader.look().snapshot == snapshot(200)
        with pytest.raises(OSError, match="No space"):
            writer.publish(many)
        assert reader.look().snapshot == snapshot(200)
        filler.unlink()
        writer.publish(many)
        assert reader.look().snapshot == many
        reader.close()
        writer.close()


def test_a_limit_on_files_is_an_error_in_words(here: BoardDirectory) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(MonitorError, match="cannot be written to"):
            Writer(here)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_header_to_which_a_later_version_has_added_is_read(
    folder: Path, here: BoardDirectory, writer: Writer, reader: SnapshotReader
) -> None:
    writer.publish(snapshot(3))
    board = folder / here.name(BOARD)
    size = snapshot_file._HEADER.size
    header = bytearray(board.read_bytes()[:size] + b"added later")
    struct.pack_into("<H", header, 10, len(header))
    with board.open("r+b") as file:
        file.write(header + struct.pack("<I", zlib.crc32(header)))
    seen = reader.look()

    assert (seen.snapshot, seen.stale_since) == (snapshot(3), None)
    assert seen.age is not None
    with board.open("r+b") as file:
        file.write(header[:-1] + b"!")
    assert SnapshotReader(here).look().message is snapshot_file.NOTHING


def test_the_header_stays_as_it_is() -> None:
    """Environments share a board: what is there keeps its place."""
    header = snapshot_file.Header(1, 2, 3, 4, 5.0, 6.0, 7.0, 8.0, 9, 10, 11)

    assert header.pack().hex() == (
        "74666770756d61670200500001000000020000000000000003000000040000000000000000001440"
        "00000000000018400000000000001c400000000000002040090000000a0000000b000000000000000e4992d4"
    )  # fmt: skip


def test_a_view_that_is_closed_keeps_no_file_open(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Live, "ensure", Live._placed)  # and no collector
    writer.publish(snapshot(3))
    before, live = len([*Path("/proc/self/fd").iterdir()]), Live()
    assert live.look().snapshot == snapshot(3)
    live.close()

    assert len([*Path("/proc/self/fd").iterdir()]) == before


# --- what was used before ---


def test_the_last_ten_minutes_are_known_by_the_second_and_an_hour_by_ten(
    writer: Writer, reader: SnapshotReader
) -> None:
    for second in range(5000):
        writer.publish(snapshot(at=1e9 + second, used=second))
    past = reader.history()

    assert past.used["GPU-0"] == tuple(round(at - 1e9) for at in past.times)
    assert list(past.times[-600:]) == [1e9 + second for second in range(4400, 5000)]
    coarse = past.times[:-600]
    assert {after - before for before, after in itertools.pairwise(coarse)} == {10}
    assert past.times[-1] - past.times[0] >= 2980  # 50 minutes, of which the last ten are finer


def test_the_past_outlives_the_writer(here: BoardDirectory, writer: Writer, reader: SnapshotReader) -> None:
    for second in range(2000):
        writer.publish(snapshot(at=1e9 + second, used=second))
    before = reader.history()
    again = Writer(here)
    again.publish(snapshot(at=1e9 + 2000, used=2000))
    past = reader.history()

    assert past.times == (*before.times, 1e9 + 2000)
    assert past.used["GPU-0"] == tuple(round(at - 1e9) for at in past.times)
    again.close()


def test_gpus_that_come_and_go_keep_their_past_and_unknown_is_none(writer: Writer, reader: SnapshotReader) -> None:
    writer.publish(snapshot(at=1e9, uuid="GPU-a", used=1))
    writer.publish(snapshot(at=1e9 + 1, uuid="GPU-b", used=2))
    writer.publish(snapshot(at=1e9 + 2, uuid="GPU-a", used=None))

    assert reader.history().used == {"GPU-b": (None, 2, None), "GPU-a": (1, None, None)}


@pytest.mark.parametrize(
    ("times", "kept"),
    [
        ((0, 0.2, 1), (0, 1)),  # no faster than a second
        ((*range(900), 300.0, 301.0), (*range(0, 300, 10), 300, 301)),  # nothing is left in the future
    ],
)
def test_points_come_in_order_and_no_faster_than_a_second(
    writer: Writer, reader: SnapshotReader, times: tuple[float, ...], kept: tuple[float, ...]
) -> None:
    for at in times:
        writer.publish(snapshot(at=1e9 + at, used=int(at)))
    past = reader.history()

    assert past.times == tuple(1e9 + at for at in kept)
    assert past.used["GPU-0"][-1] == kept[-1]


def test_a_clock_that_was_set_back_between_two_writers_does_not_hold_the_second_up(
    here: BoardDirectory, writer: Writer, reader: SnapshotReader
) -> None:
    for at in range(100):
        writer.publish(snapshot(at=1e9 + at))
    again = Writer(here)
    again.publish(snapshot(at=1e9 + 50))
    again.close()

    assert reader.history().times == tuple(1e9 + at for at in range(51))


def test_half_a_point_is_no_point(folder: Path, here: BoardDirectory, writer: Writer, reader: SnapshotReader) -> None:
    for second in range(3):
        writer.publish(snapshot(at=1e9 + second))
    with (folder / here.name(BOARD)).open("r+b") as file:
        file.seek(snapshot_file._HISTORY + history._TABLE + 24 + 8)
        file.write(b"!")

    assert reader.history().times == (1e9, 1e9 + 2)
