"""The record: read as it was written, whole or not at all, and without those that have ended."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.owners.pids import began
from tfgpu_magic.parking import RECORD, record
from tfgpu_magic.parking.record import ParkedProcess, ParkingLedger, ParkingRecord, Rates, merged
from tfgpu_magic.parking.states import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENTRIES = st.builds(
    ParkedProcess,
    pid=st.integers(1, 2**22),
    began=st.integers(0, 2**40),
    phase=st.sampled_from(Phase),
    since=st.floats(0, 1e10),
    held=st.lists(st.builds(HeldMemory, st.text(), st.integers(0, 2**40))).map(tuple),
    name=st.text(),
    returns=st.integers(0, 9),
    trouble=st.sampled_from(["", "stopped"]),
)
RATES = st.builds(Rates, st.none() | st.floats(1, 1e12), st.none() | st.floats(1, 1e12))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[BoardDirectory]:
    with BoardDirectory(tmp_path / "board") as place:
        yield place


def mine(phase: Phase = Phase.PARKED, **fields: object) -> ParkedProcess:
    """Return an entry of this process, which lives."""
    start = began(os.getpid())
    assert start is not None
    fields = {"pid": os.getpid(), "began": start, "phase": phase, "since": 1.0, **fields}
    return ParkedProcess(**fields)  # type: ignore[arg-type]


@given(st.lists(ENTRIES), RATES)
def test_it_is_read_as_it_was_written(entries: list[ParkedProcess], rates: Rates) -> None:
    written = ParkingRecord({(one.pid, one.began): one for one in entries}, rates)

    assert ParkingRecord.from_json(written.to_json()) == written


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"entries":[{}],"rates":{}}', '{"entries":[],"rates":{"x":1}}'])
def test_what_is_no_record_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a|Expecting value"):
        ParkingRecord.from_json(text)


def test_nothing_is_there_before_anything_was_parked(place: BoardDirectory) -> None:
    assert record.read(place) == ParkingRecord()


def test_those_that_have_ended_are_left_out(place: BoardDirectory) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        start = began(other.pid)
        assert start is not None
        theirs = ParkedProcess(pid=other.pid, began=start, phase=Phase.PARKED, since=1.0)
        record.write(place, ParkingRecord().put(mine()).put(theirs))
        both = record.read(place)
        other.communicate()

    assert len(both.entries) == 2
    assert list(record.read(place).entries.values()) == [mine()]


def test_another_process_with_the_same_pid_is_not_taken_for_it(place: BoardDirectory) -> None:
    record.write(place, ParkingRecord().put(mine(began=7)))

    assert record.read(place) == ParkingRecord()


def test_half_a_record_is_none(place: BoardDirectory) -> None:
    record.write(place, ParkingRecord().put(mine()))
    file = place.path / place.name(RECORD)
    file.write_bytes(file.read_bytes()[:-9])

    assert record.read(place) == ParkingRecord()


def test_what_a_killed_writer_has_left_is_in_nobodys_way(place: BoardDirectory) -> None:
    record.write(place, ParkingRecord().put(mine()))
    (place.path / place.name(RECORD + "-new")).write_text("{")
    record.write(place, ParkingRecord().put(mine(name="again")))

    assert [one.name for one in record.read(place).entries.values()] == ["again"]


def test_of_two_records_the_newer_entry_counts() -> None:
    old, new = mine(Phase.CHECKPOINTING, since=1.0), mine(since=2.0)

    assert merged([ParkingRecord().put(old), ParkingRecord().put(new)]) == merged(
        [ParkingRecord().put(new), ParkingRecord().put(old)]
    )
    assert list(merged([ParkingRecord().put(old), ParkingRecord().put(new)]).entries.values()) == [new]


def test_rates_follow_what_is_measured() -> None:
    rates = Rates()

    assert rates.seconds_back(2 * 10**9) == 2.0  # what is planned for
    assert rates.after(out=4e9).seconds_back(2 * 10**9) == 0.5  # as long as out, where that is all that is known
    assert rates.after(back=4e9).seconds_back(2 * 10**9) == 0.5
    assert rates.after(back=4e9).after(back=2e9) == Rates(None, 3e9)
    assert rates.after(out=1e9).after(back=2e9) == Rates(1e9, 2e9)


# --- the helper's own copy ---


def test_nothing_begins_that_cannot_be_written(place: BoardDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ParkingLedger(place, ParkingRecord())

    def full(*_: object) -> None:
        raise MonitorError("full")

    monkeypatch.setattr(record, "write", full)
    with pytest.raises(MonitorError):
        ledger.begin(mine(Phase.LOCKING))

    assert ledger.record == ParkingRecord()


def test_what_goes_on_is_written_as_soon_as_it_can_be(place: BoardDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ParkingLedger(place, ParkingRecord())
    entry = ledger.begin(mine(Phase.LOCKING))
    with monkeypatch.context() as patch:
        patch.setattr(BoardDirectory, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
        entry = ledger.move(entry, Phase.CHECKPOINTING)
        before = record.read(place)
    ledger.sweep()

    assert [one.phase for one in before.entries.values()] == [Phase.LOCKING]
    assert [one.phase for one in record.read(place).entries.values()] == [Phase.CHECKPOINTING]


def test_a_phase_that_cannot_follow_is_a_mistake_of_ours(place: BoardDirectory) -> None:
    ledger = ParkingLedger(place, ParkingRecord())
    entry = ledger.begin(mine(Phase.LOCKING))

    with pytest.raises(AssertionError, match="cannot follow"):
        ledger.move(entry, Phase.RESTORING)


def test_since_when_a_process_is_away_outlasts_an_attempt_to_bring_it_back(place: BoardDirectory) -> None:
    ledger = ParkingLedger(place, ParkingRecord())
    parked = ledger.begin(mine(since=5.0))
    again = ledger.move(ledger.move(parked, Phase.RESTORING), Phase.PARKED)
    back = ledger.move(again, Phase.BACK)

    assert again.since == 5.0
    assert back.since > 5.0
