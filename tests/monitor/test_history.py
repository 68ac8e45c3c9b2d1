"""What was used before: by the second for ten minutes, by ten seconds for an hour; it outlives its writer."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.monitor.boards import snapshot
from tfgpu_magic.monitor.board import history, snapshot_file
from tfgpu_magic.monitor.board.snapshot_file import BOARD, SnapshotReader, Writer

if TYPE_CHECKING:
    from pathlib import Path

    from tfgpu_magic.monitor.board.directory import BoardDirectory


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
