"""What the parker and those who ask it say to each other: a line of JSON each, a request, then progress, then the end.

A request may be called off by a second line, or by closing the connection; what cannot be called off any more is done.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.parking import refusals
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.record import ParkedProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.parking.refusals import Refusal

Deed: TypeAlias = Literal["park", "unpark", "check"]
"""What can be asked: to park a process, to bring it back, and whether it could be parked."""

SOCKET = "parker-2"
"""The parker's socket on the board, with the version of what is said."""
LOCK = "lock-parker-1"
"""The file whose lock makes one parker the only one."""
HEARTBEAT = 1.0
"""Seconds between two lines to whoever waits, at the most."""
SILENCE = 30.0
"""Seconds without a line after which the parker hangs."""

ANSWER = "tfgpu_magic.parked"
"""The name, in the metadata of a message's end, of an outcome with which a kernel answers who has asked it to park."""
COME_BACK, STAY = "answer_back()", "answer_stay()"
"""What a parked kernel is asked: functions of `inside.notebook`, whose code the gate does not run but knows."""

CALL_OFF = b"{}\n"
"""The line that calls a request off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for.

    Attributes:
        deed: what.
        pid: the process; None is the one that asks.
        name: what the process is called.
        inside: what it says of itself; taken from it alone, or from a process that has started it.
        allow_open_module: whether the administrator allows the open kernel module.
        held: what it held when it was parked, for a parker whose record is lost.
    """

    deed: Deed
    pid: int | None = None
    name: str = ""
    inside: Inside | None = None
    allow_open_module: bool = False
    held: tuple[HeldMemory, ...] = ()

    def to_line(self) -> bytes:
        """Return the request as a line."""
        return _line(dataclasses.asdict(self))

    @classmethod
    def from_line(cls, line: bytes) -> Request:
        """Make a request of what `to_line` returned.

        Raises:
            ValueError: it is none.
        """
        try:
            fields = json.loads(line)
            inside = fields["inside"]
            held = tuple(HeldMemory(**one) for one in fields["held"])
            made = None if inside is None else _inside(inside)
            return cls(**{**fields, "inside": made, "held": held})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a request: {error}") from error


@dataclass(frozen=True, slots=True)
class Room:
    """A GPU that a process needs room on.

    Attributes:
        gpu: its UUID.
        label: its `Gpu.label`; empty where it is not there now.
        needed: bytes that must be free.
        free: bytes that are free; None where that is unknown.
        holders: the pids on it and what they hold, the largest first.
    """

    gpu: str
    label: str
    needed: int
    free: int | None
    holders: tuple[tuple[int, int | None], ...] = ()

    @property
    def short(self) -> int:
        """Bytes that are missing."""
        return max(0, self.needed - (self.free or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a request is getting on.

    Attributes:
        step: what is being done: ``checks``, ``locks``, ``copies out``, ``settles``, ``waits``, ``takes room``,
            ``copies back``.
        size: bytes that are moved.
        seconds: how long that will take by the measured rate, from its beginning; None where it is not known.
        ahead: the pids whose turn is before.
        rooms: while it waits, each GPU on which it needs room; empty where there are no figures.
        trouble: while it waits, what else is in the way; None where that is nothing.
    """

    step: str
    size: int = 0
    seconds: float | None = None
    ahead: tuple[int, ...] = ()
    rooms: tuple[Room, ...] = ()
    trouble: Refusal | None = None

    def to_line(self) -> bytes:
        """Return the progress as a line."""
        trouble = None if self.trouble is None else refusals.to_json(self.trouble)
        return _line({"progress": {**dataclasses.asdict(self), "trouble": trouble}})

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Progress:
        """Make one of what `to_line` has within its line."""
        rooms = tuple(Room(**{**one, "holders": _pairs(one["holders"])}) for one in fields["rooms"])
        trouble = None if fields["trouble"] is None else refusals.from_json(fields["trouble"])
        return cls(**{**fields, "rooms": rooms, "ahead": tuple(fields["ahead"]), "trouble": trouble})


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkOutcome:
    """What came of a request.

    Attributes:
        entry: the process as the record has it; None where it is not in it.
        refusals: why it was not done; empty where it was, or where it was so already.
        seconds: how long the driver took for what was done.
        notes: what else is to be said of it.
    """

    entry: ParkedProcess | None = None
    refusals: tuple[Refusal, ...] = ()
    seconds: float = 0.0
    notes: tuple[Refusal, ...] = ()

    @property
    def done(self) -> bool:
        """Whether it was done, or was so already."""
        return not self.refusals

    def to_line(self) -> bytes:
        """Return the outcome as a line."""
        fields = {
            "entry": None if self.entry is None else self.entry.to_json(),
            "refusals": [refusals.to_json(one) for one in self.refusals],
            "seconds": self.seconds,
            "notes": [refusals.to_json(one) for one in self.notes],
        }
        return _line({"outcome": fields})

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ParkOutcome:
        """Make one of what `to_line` has within its line."""
        entry = None if fields["entry"] is None else ParkedProcess.from_json(fields["entry"])
        return cls(
            entry=entry,
            refusals=tuple(refusals.from_json(one) for one in fields["refusals"]),
            seconds=fields["seconds"],
            notes=tuple(refusals.from_json(one) for one in fields["notes"]),
        )


def reply(line: bytes) -> Progress | ParkOutcome:
    """Make of a line of the parker what it says.

    Raises:
        ValueError: it is none.
    """
    try:
        fields = json.loads(line)
        if "outcome" in fields:
            return ParkOutcome.from_json(fields["outcome"])
        return Progress.from_json(fields["progress"])
    except (TypeError, KeyError) as error:
        raise ValueError(f"not a reply: {error}") from error


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _inside(fields: Mapping[str, Any]) -> Inside:
    lists = {name: tuple(fields[name]) for name in ("threads", "libraries")}
    return Inside(**{**fields, **lists})


def _pairs(values: list[list[Any]]) -> tuple[Any, ...]:
    return tuple(tuple(pair) for pair in values)
