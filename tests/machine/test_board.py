"""The board: what is published is seen whole or not at all, and the past outlives its writer."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.machine.boards import fill, root_only, snapshot
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.machine.board import history, snapshot_file
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.history import HISTORY, HistoryWriter
from tfgpu_magic.machine.board.snapshot_file import NOTHING, SNAPSHOT, SnapshotReader, SnapshotWriter
from tfgpu_magic.machine.see import Watch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.synchronize import Event


def publish(writer: SnapshotWriter, seen: Snapshot, *, due: float = 1.0, ago: float = 0.0) -> Snapshot:
    """Publish a snapshot that was read so many seconds ago, and return it; the next is due so many seconds from now."""
    made = seen._replace(time=time.time() - ago)
    writer.publish(made, due=time.time() + due)
    return made


def file(place: BoardDirectory, name: str = SNAPSHOT) -> Path:
    return place.path / place.full_name(name)


def test_what_is_published_is_what_is_seen(writer: SnapshotWriter, reader: SnapshotReader) -> None:
    one = publish(writer, snapshot(3))
    first = reader.read()
    writer.beat(time.time() + 1)
    assert reader.read().snapshot is first.snapshot  # what has not changed is the same object
    other = publish(writer, snapshot(4))
    second = reader.read()

    assert (first.snapshot, second.snapshot) == (one, other)
    assert first.sequence < second.sequence
    assert second.stale_since is None
    assert 0 <= (second.age or -1) < 60


def test_before_anything_is_published_that_is_said_and_a_writer_that_never_came_is_missed(
    writer: SnapshotWriter, reader: SnapshotReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.time()
    writer.beat(begun + 1)
    seen = reader.read()
    monkeypatch.setattr(snapshot_file, "STALE_AFTER", 0.0)
    missed = reader.read().stale_since or 0

    assert (seen.age, seen.stale_since, seen.sequence) == (None, None, 0)
    assert seen.snapshot.error == "The GPUs are being asked for the first time."
    assert begun - 1 <= missed <= time.time()


def test_a_writer_that_is_missed_is_said_with_the_time_it_was_last_here(
    here: BoardDirectory, writer: SnapshotWriter, reader: SnapshotReader
) -> None:
    publish(writer, snapshot(), due=120, ago=90)
    left = time.time() - 60
    os.utime(file(here), (left, left))
    stale = reader.read()
    writer.beat(time.time() + 1)

    assert stale.stale_since == pytest.approx(left, abs=0.01)
    assert stale.snapshot.gpus == snapshot().gpus
    assert reader.read().stale_since is None


def test_a_writer_that_has_ended_is_missed_at_once(writer: SnapshotWriter, reader: SnapshotReader) -> None:
    read = publish(writer, snapshot()).time
    writer.end()

    assert reader.read().stale_since == read


def test_figures_that_are_older_than_was_meant_are_stale_though_the_writer_is_here(
    writer: SnapshotWriter, reader: SnapshotReader
) -> None:
    publish(writer, snapshot(), due=11)
    rare = reader.read()
    read = publish(writer, snapshot(), due=-4, ago=10).time  # a reading was due
    late = reader.read()

    assert (rare.stale_since, round(rare.every)) == (None, 11)
    assert late.stale_since == read


def test_what_was_left_is_not_true_again_because_a_writer_is_back(
    here: BoardDirectory, writer: SnapshotWriter, reader: SnapshotReader
) -> None:
    one = publish(writer, snapshot(3))
    os.utime(file(here), (one.time - 60, one.time - 60))
    again = SnapshotWriter(here)
    again.beat(time.time() + 1)
    left = reader.read()
    other = publish(again, snapshot(4))
    read = reader.read()

    assert left.snapshot == one
    assert left.stale_since is not None
    assert (read.snapshot, read.stale_since) == (other, None)


def test_a_new_writer_goes_on_where_one_ended(
    here: BoardDirectory, writer: SnapshotWriter, reader: SnapshotReader
) -> None:
    publish(writer, snapshot(3))
    before = reader.read()
    again = SnapshotWriter(here)

    assert again.past is not None
    assert again.past.snapshot == before.snapshot
    publish(again, snapshot(4))
    assert reader.read().sequence == before.sequence + 1


@pytest.mark.parametrize("by", [-3600, 3600])
def test_a_clock_that_is_set_and_a_machine_that_slept_make_old_figures_stale_until_the_next_sign(
    here: BoardDirectory, writer: SnapshotWriter, reader: SnapshotReader, by: int
) -> None:
    then = time.time() + by
    publish(writer, snapshot(), due=by, ago=-by)
    os.utime(file(here), (then, then))
    seen = reader.read()
    publish(writer, snapshot())

    assert seen.stale_since is not None
    assert reader.read().stale_since is None


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


def test_who_has_very_many_processes_hides_nobody_elses(writer: SnapshotWriter, reader: SnapshotReader) -> None:
    published = publish(writer, crowd({1001: 5000, 1002: 300, None: 4500}))
    seen = reader.read().snapshot
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


def _write_without_pause(until_told: Event) -> None:
    with BoardDirectory() as here:
        writer = SnapshotWriter(here)
        while not until_told.is_set():
            for count in (399, 400):
                writer.publish(snapshot(count))


def test_no_reader_ever_sees_half_a_message_of_a_writer_without_pause(
    writer: SnapshotWriter, reader: SnapshotReader
) -> None:
    writer.publish(snapshot(399))
    context = multiprocessing.get_context("spawn")
    enough = context.Event()
    process = context.Process(target=_write_without_pause, args=(enough,))
    process.start()
    seen = {}

    def look() -> int:
        reading = reader.read()
        seen[reading.sequence] = reading.snapshot
        return len(seen)

    try:
        until(look, lambda count: count > 100, every=0.0)
    finally:
        enough.set()
        process.join()

    assert process.exitcode == 0
    assert all(one in (snapshot(399), snapshot(400)) for one in seen.values())


def test_a_writer_that_died_in_the_middle_leaves_the_reading_before(
    here: BoardDirectory, writer: SnapshotWriter, reader: SnapshotReader
) -> None:
    one = publish(writer, snapshot(3))
    file(here, "new-" + SNAPSHOT).write_bytes(b"half of a mess")

    assert reader.read().snapshot == one
    other = publish(writer, snapshot(4))
    assert reader.read().snapshot == other


def spoil(content: bytes) -> dict[str, bytes]:
    """Return what may stand in the place of a file, by what it is."""
    head, text, _ = content.split(b"\n")
    fields = json.loads(head)
    return {
        "nothing": b"",
        "half of it": content[: len(content) // 2],
        "all but its end": content[:-1],
        "zeros": bytes(10_000),
        "another's": b"#!/bin/sh\n" * 1000,
        "another version": content.replace(b'"version": 1,', b'"version": 2,'),
        "no fields": b"[]\n" + text + b"\n",
        "a field of another type": json.dumps(fields | {"due": []}).encode() + b"\n" + text + b"\n",
        "a sequence that is none": json.dumps(fields | {"sequence": "1e"}).encode() + b"\n" + text + b"\n",
        "no snapshot": head + b"\n{}\n",
        "a time that is none": head + b"\n" + text.replace(b'"time":', b'"time":"x","was":') + b"\n",
        "very deep": head + b"\n" + b"[" * 100_000 + b"\n",
    }


@pytest.mark.parametrize("what", spoil(b"{}\n\n"))
def test_what_is_no_whole_file_of_this_version_counts_as_none_and_is_replaced(
    here: BoardDirectory, writer: SnapshotWriter, reader: SnapshotReader, what: str
) -> None:
    one = publish(writer, snapshot(3))
    reader.read()
    file(here).write_bytes(spoil(file(here).read_bytes())[what])
    seen, new = reader.read(), SnapshotReader(here).read()
    again = SnapshotWriter(here)

    assert seen.snapshot == one  # the last that was seen
    assert (new.snapshot, again.past) == (NOTHING, None)
    other = publish(again, snapshot(4))
    assert reader.read().snapshot == other


def test_what_a_later_version_has_added_is_passed_over(here: BoardDirectory, writer: SnapshotWriter) -> None:
    one = publish(writer, snapshot(3))
    head, *rest = file(here).read_bytes().split(b"\n")
    file(here).write_bytes(b"\n".join([json.dumps(json.loads(head) | {"later": [1]}).encode(), *rest]))

    assert SnapshotReader(here).read().snapshot == one


@root_only
def test_on_a_full_disk_the_last_figures_stay_with_their_age_until_there_is_room(small_disk: Path) -> None:
    many = snapshot(4000)
    many = many._replace(processes=tuple(row._replace(cgroup="unit:user-1000.slice") for row in many.processes))
    with BoardDirectory() as here:
        writer, reader = SnapshotWriter(here), SnapshotReader(here)
        one = publish(writer, snapshot(200), due=-10, ago=20)
        filler = fill(small_disk)

        with pytest.raises(OSError, match="No space"):
            publish(writer, many)
        left = reader.read()
        assert (left.snapshot, left.stale_since) == (one, one.time)
        filler.unlink()
        other = publish(writer, many)
        assert reader.read().snapshot == other


def test_a_view_that_is_closed_keeps_no_file_open(writer: SnapshotWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watch, "_ensure_collector", Watch._find_directory)  # and no collector
    one = publish(writer, snapshot(3))
    before, watch = len([*Path("/proc/self/fd").iterdir()]), Watch()
    assert watch.read().snapshot == one
    watch.close()

    assert len([*Path("/proc/self/fd").iterdir()]) == before


# --- what was used before ---


@pytest.fixture
def past(here: BoardDirectory) -> HistoryWriter:
    return HistoryWriter(here)


def test_the_last_ten_minutes_are_known_by_the_second_and_an_hour_by_ten(
    here: BoardDirectory, past: HistoryWriter
) -> None:
    for second in range(5000):
        past.add(snapshot(at=1e9 + second, used=second))
    found = history.read_history(here)

    assert found.used["GPU-0"] == tuple(round(at - 1e9) for at in found.times)
    assert list(found.times[-600:]) == [1e9 + second for second in range(4400, 5000)]
    assert {after - before for before, after in itertools.pairwise(found.times)} == {1, 10}
    assert 3000 <= found.times[-1] - found.times[0] <= 3600 + 600
    assert len(file(here, HISTORY).read_bytes().splitlines()) < 1600


def test_the_past_outlives_the_writer(here: BoardDirectory, past: HistoryWriter) -> None:
    for second in range(500):
        past.add(snapshot(at=1e9 + second, used=second))
    before = history.read_history(here)
    again = HistoryWriter(here)
    again.add(snapshot(at=1e9 + 500, used=500))
    found = history.read_history(here)

    assert found.times == (*before.times, 1e9 + 500)
    assert found.used["GPU-0"] == tuple(round(at - 1e9) for at in found.times)


def test_gpus_that_come_and_go_keep_their_past_and_unknown_is_none(here: BoardDirectory, past: HistoryWriter) -> None:
    past.add(snapshot(at=1e9, uuid="GPU-a", used=1))
    past.add(snapshot(at=1e9 + 1, uuid="GPU-b", used=2, utilisation=0.4))
    past.add(snapshot(at=1e9 + 2, uuid="GPU-a", used=None, utilisation=93.6))
    found = history.read_history(here)

    assert found.used == {"GPU-b": (None, 2, None), "GPU-a": (1, None, None)}
    assert found.utilisation == {"GPU-b": (None, 0, None), "GPU-a": (None, None, 94)}


@pytest.mark.parametrize(
    ("times", "kept"),
    [
        ((0, 0.2, 1), (0, 1)),  # no faster than a second
        ((*range(900), 300.0, 301.0), (*range(302),)),  # nothing is left in the future
    ],
)
def test_points_come_in_order_and_no_faster_than_a_second(
    here: BoardDirectory, past: HistoryWriter, times: tuple[float, ...], kept: tuple[float, ...]
) -> None:
    for at in times:
        past.add(snapshot(at=1e9 + at, used=int(at)))
    found = history.read_history(here)

    assert found.times == tuple(1e9 + at for at in kept)
    assert found.used["GPU-0"][-1] == kept[-1]


def test_a_clock_that_was_set_back_between_two_writers_does_not_hold_the_second_up(
    here: BoardDirectory, past: HistoryWriter
) -> None:
    for at in range(100):
        past.add(snapshot(at=1e9 + at))
    HistoryWriter(here).add(snapshot(at=1e9 + 50))

    assert history.read_history(here).times == tuple(1e9 + at for at in range(51))


@pytest.mark.parametrize(
    "line", [b'\n{"time":1000000001.0,"gp', b"\n[]", b'\n{"time":"x","gpus":{}}', b"\n" + bytes(99)]
)
def test_what_is_no_point_is_left_out(here: BoardDirectory, past: HistoryWriter, line: bytes) -> None:
    past.add(snapshot(at=1e9))
    with file(here, HISTORY).open("ab") as opened:
        opened.write(line)
    past.add(snapshot(at=1e9 + 2))

    assert history.read_history(here).times == (1e9, 1e9 + 2)
