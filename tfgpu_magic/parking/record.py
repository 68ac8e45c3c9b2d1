"""The record of what is parked: a small file on the board, which the parker alone writes and anybody of the user reads.

A process is known by its pid and its start, since pids are used again. The file is replaced as a whole, so half a
record is never read; what has ended meanwhile is left out by its readers. The parker's own copy of it, the ledger,
checks every change against `states`, and writes it before what it announces. A change that cannot be written, as on a
full disk, is kept and written later: only what is begun has to be written first. Without it, the driver's state is
enough to set a process right.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.monitor.board.directory import BoardDirectory, other_directories
from tfgpu_magic.monitor.owners.pids import began
from tfgpu_magic.parking import RECORD
from tfgpu_magic.parking.states import FOLLOWS, UNSETTLED, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfgpu_magic.monitor.board.directory import BoardDirectory

PLANNED_RATE = 1e9
"""Bytes a second that are planned for where nothing was measured yet: a slow host's."""

_LARGEST = 2**20  # bytes
_NEWEST = 0.5  # how much the last measurement counts in a rate
Key: TypeAlias = tuple[int, int]
"""A process's pid and its start."""

_AWAY = frozenset({Phase.PARKED, Phase.RESTORING, Phase.UNLOCKING})


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedProcess:
    """A process that is parked, on its way, or has been parked.

    Attributes:
        pid: its pid.
        began: when it began, in the system's ticks since its start (`pids.began`).
        phase: how far it has come.
        since: when the phase began, in seconds since the epoch; as long as it is away, since when it is.
        held: what it holds, or held, of each GPU.
        name: what it is called: a notebook's path, a program's name.
        returns: how often it has come back.
        trouble: why its phase does not go on, for now; a word of `transfers`, empty where nothing is wrong.
        wanted: whether somebody waits for it to come back, and there is no room.
    """

    pid: int
    began: int
    phase: Phase
    since: float
    held: tuple[HeldMemory, ...] = ()
    name: str = ""
    returns: int = 0
    trouble: str = ""
    wanted: bool = False

    @property
    def size(self) -> int:
        """Bytes on all GPUs; as long as it is parked they are in the host's memory."""
        return sum(held.size for held in self.held)

    @property
    def parked(self) -> bool:
        """Whether its GPU state is in the host's memory, or on its way there or back."""
        return self.phase in UNSETTLED or self.phase is Phase.PARKED

    def alive(self) -> bool:
        """Tell whether the process exists; a zombie does not."""
        return began(self.pid) == self.began

    def to_json(self) -> dict[str, Any]:
        """Return the entry as what JSON can hold."""
        return dataclasses.asdict(self) | {"phase": self.phase.value}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ParkedProcess:
        """Make an entry of what `to_json` returned.

        Raises:
            ValueError: it is none.
        """
        try:
            held = tuple(HeldMemory(str(one["gpu"]), int(one["size"])) for one in fields["held"])
            return cls(**{**fields, "phase": Phase(fields["phase"]), "held": held})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not an entry: {error}") from error


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast this host moves GPU state, in bytes a second; None where it was never measured.

    Attributes:
        out: from a GPU to host memory.
        back: from host memory to a GPU.
    """

    out: float | None = None
    back: float | None = None

    def after(self, *, out: float | None = None, back: float | None = None) -> Rates:
        """Return the rates after another measurement, which counts as much as all before it."""
        return Rates(_mean(self.out, out), _mean(self.back, back))

    def seconds_out(self, size: int) -> float:
        """Return how long so many bytes take to host memory."""
        return size / (self.out or PLANNED_RATE)

    def seconds_back(self, size: int) -> float:
        """Return how long so many bytes take back: as long as out, where that alone was measured."""
        return size / (self.back or self.out or PLANNED_RATE)


@dataclass(frozen=True, slots=True)
class ParkingRecord:
    """All that is written.

    Attributes:
        entries: every process, by its pid and start.
        rates: what was measured.
    """

    entries: Mapping[tuple[int, int], ParkedProcess] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)

    @property
    def away(self) -> frozenset[int]:
        """The pids of what is parked, and neither on its way there nor back."""
        return frozenset(entry.pid for entry in self.entries.values() if entry.phase is Phase.PARKED)

    def put(self, entry: ParkedProcess) -> ParkingRecord:
        """Return the record with this entry, in the place of the process's earlier one."""
        return replace(self, entries={**self.entries, (entry.pid, entry.began): entry})

    def drop(self, pid: int, began: int) -> ParkingRecord:
        """Return the record without a process."""
        return replace(self, entries={key: one for key, one in self.entries.items() if key != (pid, began)})

    def living(self) -> ParkingRecord:
        """Return the record without the processes that have ended."""
        return replace(self, entries={key: one for key, one in self.entries.items() if one.alive()})

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        fields = {
            "entries": [entry.to_json() for entry in self.entries.values()],
            "rates": dataclasses.asdict(self.rates),
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ParkingRecord:
        """Make a record of what `to_json` returned.

        Raises:
            ValueError: it is none.
        """
        try:
            fields = json.loads(text)
            entries = [ParkedProcess.from_json(one) for one in fields["entries"]]
            return cls({(one.pid, one.began): one for one in entries}, Rates(**fields["rates"]))
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a record: {error}") from error


def write(place: BoardDirectory, record: ParkingRecord) -> None:
    """Replace the record. Nothing waits for the disk: after a crash of the system no process is there to be known.

    Raises:
        MonitorError: it cannot be written; the one before is still there.
    """
    new, text = f"{RECORD}-new", record.to_json().encode()
    place.remove(new)
    try:
        fd = place.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            if os.write(fd, text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(fd)
        place.replace(new, RECORD)
    except OSError as error:
        place.remove(new)
        raise MonitorError(f"What is parked cannot be written to {place.path} ({error.strerror}).") from error


def read(place: BoardDirectory) -> ParkingRecord:
    """Return what is written there of processes that live; nothing where no record is there, or none that is whole."""
    with contextlib.suppress(FileNotFoundError, MonitorError, OSError, ValueError):
        fd = place.open(RECORD, os.O_RDONLY)
        try:
            return ParkingRecord.from_json(os.read(fd, _LARGEST).decode()).living()
        finally:
            os.close(fd)
    return ParkingRecord()


def read_all(place: BoardDirectory) -> ParkingRecord:
    """Return what is written in any directory that a board may be in; of two entries of a process the newer one."""
    others = other_directories(place)
    try:
        return merged([read(one) for one in (place, *others)])
    finally:
        for other in others:
            other.close()


def merged(records: Iterable[ParkingRecord]) -> ParkingRecord:
    """Join records; the rates are those of the first that has any."""
    entries: dict[tuple[int, int], ParkedProcess] = {}
    rates = Rates()
    for record in records:
        rates = record.rates if rates == Rates() else rates
        for key, entry in record.entries.items():
            if key not in entries or entry.since > entries[key].since:
                entries[key] = entry
    return ParkingRecord(entries, rates)


def _mean(before: float | None, now: float | None) -> float | None:
    return before if now is None else now if before is None else before + _NEWEST * (now - before)


class ParkingLedger:
    """What is parked, as the parker knows it.

    Args:
        place: where the record is.
        before: what earlier parkers have left, there or elsewhere.
    """

    def __init__(self, place: BoardDirectory, before: ParkingRecord) -> None:
        self._place = place
        self._record = replace(before, entries={key: replace(one, wanted=False) for key, one in before.entries.items()})
        self._written = False
        self.save()

    @property
    def record(self) -> ParkingRecord:
        """All of it."""
        return self._record

    def entry(self, key: Key) -> ParkedProcess | None:
        """Return what is known of a process."""
        return self._record.entries.get(key)

    def unsettled(self) -> list[Key]:
        """Return the processes of which it is not known what became of the last call."""
        return [key for key, entry in self._record.entries.items() if entry.phase in UNSETTLED]

    def busy(self) -> bool:
        """Tell whether anything is parked, or not settled."""
        return any(entry.parked for entry in self._record.entries.values())

    def on_its_way_out(self) -> int:
        """Return the bytes of host memory that are being filled: how far each copy has come is not known."""
        entries = self._record.entries.values()
        return sum(entry.size for entry in entries if entry.phase is Phase.CHECKPOINTING)

    def begin(self, entry: ParkedProcess) -> ParkedProcess:
        """Write a process down of which something is to be begun.

        Raises:
            MonitorError: that cannot be written, so nothing may be begun.
        """
        before = self._record
        self._check(before.entries.get((entry.pid, entry.began)), entry.phase)
        self._record = before.put(entry)
        try:
            write(self._place, self._record)
        except MonitorError:
            self._record = before
            raise
        return entry

    def move(self, entry: ParkedProcess, phase: Phase, **changes: object) -> ParkedProcess:
        """Write down that a process is in another phase from now on, and return it."""
        self._check(entry, phase)
        on_its_way = phase in _AWAY and entry.phase in _AWAY
        since = entry.since if on_its_way else time.time()
        settled = {"trouble": "", "wanted": False}
        changed = replace(entry, phase=phase, since=since, **{**settled, **changes})  # type: ignore[arg-type]
        self._put(changed)
        return changed

    def note(self, entry: ParkedProcess, trouble: str) -> ParkedProcess:
        """Write down why a process's phase does not go on."""
        if entry.trouble == trouble:
            return entry
        changed = replace(entry, trouble=trouble)
        self._put(changed)
        return changed

    def want(self, key: Key, *, wanted: bool) -> None:
        """Write down whether somebody waits for a parked process to come back."""
        entry = self.entry(key)
        if entry is not None and entry.phase is Phase.PARKED and entry.wanted is not wanted:
            self._put(replace(entry, wanted=wanted))

    def forget(self, entry: ParkedProcess) -> None:
        """Take a process out of the record."""
        self._record = self._record.drop(entry.pid, entry.began)
        self._written = False
        self.save()

    def measured(self, *, out: float | None = None, back: float | None = None) -> None:
        """Write down how fast something was moved, in bytes a second."""
        self._record = replace(self._record, rates=self._record.rates.after(out=out, back=back))
        self._written = False

    def sweep(self) -> None:
        """Drop the processes that have ended, and write what is not written yet."""
        living = self._record.living()
        if len(living.entries) < len(self._record.entries):
            self._record, self._written = living, False
        self.save()

    def save(self) -> bool:
        """Write what is not written yet; tell whether everything is."""
        if not self._written:
            try:
                write(self._place, self._record)
            except MonitorError:
                return False
            self._written = True
        return True

    def _put(self, entry: ParkedProcess) -> None:
        self._record, self._written = self._record.put(entry), False
        self.save()

    def _check(self, before: ParkedProcess | None, phase: Phase) -> None:
        phase_before = None if before is None else before.phase
        if phase is not phase_before and phase not in FOLLOWS[phase_before]:
            raise AssertionError(f"{phase} cannot follow {phase_before}")
