"""The record of what is parked: a small file on the board, which the helper alone writes and anybody of the user reads.

A process is known by its pid and its start, since pids are used again. The file is replaced as a whole, so half a
record is never read; what has ended meanwhile is left out by its readers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.board.directory import BoardDirectory, other_directories
from tfgpu_magic.monitor.owners.pids import began
from tfgpu_magic.parking import RECORD
from tfgpu_magic.parking.states import UNSETTLED, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PLANNED_RATE = 1e9
"""Bytes a second that are planned for where nothing was measured yet: a slow host's."""

_LARGEST = 2**20  # bytes
_NEWEST = 0.5  # how much the last measurement counts in a rate


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds of one GPU, or held before it was parked.

    Attributes:
        gpu: the GPU's UUID.
        size: bytes by the driver's account, context included.
    """

    gpu: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A process that is parked, on its way, or has been parked.

    Attributes:
        pid: its pid.
        began: when it began, in the system's ticks since its start (`pids.began`).
        phase: how far it has come.
        since: when the phase began, in seconds since the epoch; as long as it is away, since when it is.
        held: what it holds, or held, of each GPU.
        name: what it is called: a notebook's path, a program's name.
        returns: how often it has come back.
        trouble: why its phase does not go on, for now; a word of `settling`, empty where nothing is wrong.
        wanted: whether somebody waits for it to come back, and there is no room.
    """

    pid: int
    began: int
    phase: Phase
    since: float
    held: tuple[Held, ...] = ()
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
    def from_json(cls, fields: Mapping[str, Any]) -> Entry:
        """Make an entry of what `to_json` returned.

        Raises:
            ValueError: it is none.
        """
        try:
            held = tuple(Held(str(one["gpu"]), int(one["size"])) for one in fields["held"])
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
class Record:
    """All that is written.

    Attributes:
        entries: every process, by its pid and start.
        rates: what was measured.
    """

    entries: Mapping[tuple[int, int], Entry] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)

    @property
    def away(self) -> frozenset[int]:
        """The pids of what is parked, and neither on its way there nor back."""
        return frozenset(entry.pid for entry in self.entries.values() if entry.phase is Phase.PARKED)

    def put(self, entry: Entry) -> Record:
        """Return the record with this entry, in the place of the process's earlier one."""
        return replace(self, entries={**self.entries, (entry.pid, entry.began): entry})

    def drop(self, pid: int, began: int) -> Record:
        """Return the record without a process."""
        return replace(self, entries={key: one for key, one in self.entries.items() if key != (pid, began)})

    def living(self) -> Record:
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
    def from_json(cls, text: str) -> Record:
        """Make a record of what `to_json` returned.

        Raises:
            ValueError: it is none.
        """
        try:
            fields = json.loads(text)
            entries = [Entry.from_json(one) for one in fields["entries"]]
            return cls({(one.pid, one.began): one for one in entries}, Rates(**fields["rates"]))
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a record: {error}") from error


def write(place: BoardDirectory, record: Record) -> None:
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


def read(place: BoardDirectory) -> Record:
    """Return what is written there of processes that live; nothing where no record is there, or none that is whole."""
    with contextlib.suppress(FileNotFoundError, MonitorError, OSError, ValueError):
        fd = place.open(RECORD, os.O_RDONLY)
        try:
            return Record.from_json(os.read(fd, _LARGEST).decode()).living()
        finally:
            os.close(fd)
    return Record()


def read_all(place: BoardDirectory) -> Record:
    """Return what is written in any directory that a board may be in; of two entries of a process the newer one."""
    others = other_directories(place)
    try:
        return merged([read(one) for one in (place, *others)])
    finally:
        for other in others:
            other.close()


def merged(records: Iterable[Record]) -> Record:
    """Join records; the rates are those of the first that has any."""
    entries: dict[tuple[int, int], Entry] = {}
    rates = Rates()
    for record in records:
        rates = record.rates if rates == Rates() else rates
        for key, entry in record.entries.items():
            if key not in entries or entry.since > entries[key].since:
                entries[key] = entry
    return Record(entries, rates)


def _mean(before: float | None, now: float | None) -> float | None:
    return before if now is None else now if before is None else before + _NEWEST * (now - before)
