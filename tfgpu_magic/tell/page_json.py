"""Writes rows as the JSON that live views draw: the whole state, and the changes since as a merge patch.

Unknown values are left out, never null or 0; sizes are bytes, times seconds since the epoch. A tick has a JSON Merge
Patch (RFC 7386), which makes the next state from the one before. What a GPU and a row have follows from the records of
`model`, and the page's types of all this from both: `scripts._wire` writes `labextension/src/view/wire.ts`.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, cast

from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.message import Message, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import NotRequired  # missing in Python 3.10; mypy always has it

    from tfgpu_magic.ground.report import Figure, LogicalGpu
    from tfgpu_magic.ground.rows import ProcessRow, Table
    from tfgpu_magic.machine.board.history import History

VERSION = 8
"""The version of the messages; a view of another version shows a notice."""
LONGEST_NAME = 120
"""Characters of each name that are sent; views show fewer."""

PARTS: dict[str, dict[str, str]] = {
    "gpu": dict.fromkeys(
        ("index", "reserved", "capability", "multiprocessors", "exclusive", "listed", "refused", "lost", "used_then"),
        "",
    ),
    "own": dict.fromkeys(("gpu", "figures", "parked"), ""),
    "process": dict.fromkeys(("uid", "began", "cgroup"), ""),
    "owner": {"text": "owner", "pid": "", "kernel": ""},
    "notebook": {"name": ""},
    "use": dict.fromkeys(("gpu", "logical"), ""),
    "waits": {"gpus": "", "since": "waits"},
}
"""The records in a row whose fields are the row's own members, by their field's name; with the fields that are sent by
another name than theirs, or by none. All others are sent as they are, and so is a field that a record comes to have."""

Json: TypeAlias = "bool | float | str | Sequence[Json] | Mapping[str, Json]"
WireGpu: TypeAlias = "dict[str, Json]"
WireRow: TypeAlias = "dict[str, Json]"


class WireNote(TypedDict):
    """A sentence or more, and how serious it is.

    Attributes:
        text: the sentence; names in it are safe to show.
        severity: how serious it is, from `good` to `fault`, by which a program or a page can tell what matters.
    """

    text: str
    severity: Literal["good", "note", "warning", "fault"]


class WireState(TypedDict):
    """What a view shows.

    Attributes:
        time: when the GPUs were read; 0 when they never were.
        stale: since when the figures are old.
        every: seconds between two readings, where that is more than one.
        error: why there are no figures.
        absent: whether there is no driver or GPU here.
        simulated: whether the GPUs are simulated.
        notes: what else there is to know.
        gpus: the GPUs, by their labels.
        rows: the rows, by GPU and pid.
    """

    time: float
    stale: NotRequired[float]
    every: NotRequired[int]
    error: NotRequired[str]
    absent: NotRequired[Literal[True]]
    simulated: NotRequired[Literal[True]]
    notes: NotRequired[list[WireNote]]
    gpus: dict[str, WireGpu]
    rows: dict[str, WireRow]


class Past(TypedDict):
    """The history: times, and the highest figures of each GPU from one to the next; null where they were not known.

    Attributes:
        times: the times.
        used: the bytes used, by GPU: one figure for each time.
        utilisation: the same in percent of the time in which kernels ran; absent if no GPU's is known.
    """

    times: list[float]
    used: dict[str, list[int | None]]
    utilisation: NotRequired[dict[str, list[int | None]]]


class OwnHours(TypedDict):
    """What the user's processes have held of this machine's GPUs since a time.

    Attributes:
        since: when counting began.
        held_byte_seconds: what was held, times the seconds for which it was.
        held_unused_byte_seconds: the same of what was held without use.
        unknown_process_seconds: seconds of processes of which the driver told no bytes: they are in neither figure.
    """

    since: float
    held_byte_seconds: float
    held_unused_byte_seconds: float
    unknown_process_seconds: float


class Full(TypedDict):
    """The message that a view begins with, and that `tfgpu status --json` prints.

    Attributes:
        version: the version of the messages.
        type: the kind of message.
        sequence: a number that rises from state to state.
        state: the state.
        history: what was used before.
        every: seconds after which the next message comes.
        hours: of `tfgpu status --json` alone, where the service for all users counts it.
    """

    version: int
    type: Literal["full"]
    sequence: int
    state: WireState
    history: Past
    every: NotRequired[float]
    hours: NotRequired[OwnHours]


class Tick(TypedDict):
    """The message that brings a view from one state to the next.

    Attributes:
        version: the version of the messages.
        type: the kind of message.
        sequence: the number of the state that it leads to.
        base: the sequence of the state that the patch is for.
        patch: a JSON Merge Patch (RFC 7386).
    """

    version: int
    type: Literal["tick"]
    sequence: int
    base: int
    patch: object


def state(table: Table) -> WireState:
    """Return a table as a state."""
    return cast("WireState", _without_none({
        "time": round(table.time, 3),
        "stale": None if table.stale_since is None else round(table.stale_since, 3),
        "every": every if (every := round(table.every)) > 1 else None,
        "error": table.error and phrases.clean_lines(table.error),
        "absent": table.absent or None,
        "simulated": table.simulated or None,
        "notes": [note(one) for one in (table.summary, *table.notes) if one] or None,
        "gpus": {row.gpu.label: as_json(row) for row in table.gpus},
        "rows": {f"{row.process.gpu} {row.process.pid or 'rest'}": _row(row) for row in table.processes},
    }))  # fmt: skip


def note(message: Message | str) -> WireNote:
    """Return a message for a page, with how serious it is."""
    severity = message.severity if isinstance(message, Message) else Severity.NOTE
    return {"text": phrases.clean_lines(str(message)), "severity": severity.value}


def patch(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, Any]:
    """Return the changes as a JSON Merge Patch: null removes a member. Neither state has nulls of its own."""
    changes: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        old = before.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            if inner := patch(old, value):
                changes[name] = inner
        elif name not in before or old != value:
            changes[name] = value
    return changes


def full(
    sequence: int, state: WireState, history: History, every: float | None = None, hours: OwnHours | None = None
) -> str:
    """Return the message that a view begins with.

    Args:
        sequence: a number that rises from state to state.
        state: the state.
        history: what was used before.
        every: seconds after which the next message comes; None where none does.
        hours: what the user's processes have held; None where that is not known.
    """
    message = {"version": VERSION, "type": "full", "sequence": sequence, "state": state, "history": past(history)}
    return _text(cast("Full", message | _without_none({"every": every, "hours": hours})))


def tick(sequence: int, base: int, changes: Mapping[str, object]) -> str:
    """Return the message that brings a view from the state `base` to the state `sequence`."""
    message: Tick = {"version": VERSION, "type": "tick", "sequence": sequence, "base": base, "patch": changes}
    return _text(message)


def past(history: History, *, seconds: float = 3600.0, most: int = 300) -> Past:
    """Return the history for a message; here an unknown figure is null, since each has its position.

    Args:
        history: what was used.
        seconds: how much of it, from its end.
        most: how many points of that: each has the highest figure from its time to the next point's.
    """
    times = history.times
    first = bisect_left(times, times[-1] - seconds) if times else 0
    step = max(1, -(-(len(times) - first) // most))
    chosen = range(first, len(times), step)

    def highest(series: Mapping[str, Sequence[int | None]]) -> dict[str, list[int | None]]:
        return {name: [_highest(figures[at : at + step]) for at in chosen] for name, figures in series.items()}

    told = highest({name: figures for name, figures in history.utilisation.items() if set(figures) != {None}})
    found = {"times": [round(times[index], 1) for index in chosen], "used": highest(history.used)}
    return cast("Past", found | _without_none({"utilisation": told or None}))


def _highest(figures: Iterable[int | None]) -> int | None:
    return max((figure for figure in figures if figure is not None), default=None)


def _text(message: Full | Tick) -> str:
    return json.dumps(message, separators=(",", ":"))


def as_json(record: object, part: str = "") -> dict[str, Json]:
    """Return a record as a JSON object, without what is unknown, empty or false.

    Args:
        record: a dataclass or a named tuple.
        part: the name of the field that it stands in, as `PARTS` has it.
    """
    sent: dict[str, Json] = {}
    for name, member in members(fields(record), part):
        value = getattr(record, name)
        if value is None or value is False or (not value and value != 0):
            continue
        if isinstance(value, str):
            sent[member] = _safe(name, value)
        elif isinstance(value, (int, float)):
            sent[member] = value if isinstance(value, int) else round(value, 1)
        elif name in SENT:
            sent[member] = SENT[name](value)
        elif name in PARTS:
            sent |= as_json(value, name)
        elif inner := as_json(value, name):
            sent[member] = inner
    return sent


def fields(record: object) -> tuple[str, ...]:
    """Return the names of the fields of a named tuple or a dataclass."""
    return tuple(getattr(record, "_fields", ()) or getattr(record, "__slots__", ()))


@cache
def members(names: tuple[str, ...], part: str = "") -> tuple[tuple[str, str], ...]:
    """Return those of a record's fields that are sent, each with the name by which it is."""
    sent_as = PARTS.get(part, {})
    return tuple((name, sent_as.get(name, name)) for name in names if sent_as.get(name, name))


def _safe(name: str, text: str) -> str:
    """Return a text as it is safe to show; a path is for opening the file."""
    if name == "path":
        return text
    return phrases.clean_lines(text) if name == "error" else phrases.clean(text, longest=LONGEST_NAME)


def _row(row: ProcessRow) -> WireRow:
    sent = as_json(row) | ({} if row.held_or_reported is None else {"held": row.held_or_reported})
    if row.process.pid <= 0:
        del sent["pid"]
    # A path on another server, or on none, leads to no file here; and a kernel of this one is not ended by its pid.
    sent.pop("began" if "kernel" in sent else "path", None)
    return sent


def _figures(figures: Iterable[Figure]) -> dict[str, dict[str, int]]:
    """Return figures by framework and name, since a merge patch would have all of a list when one has changed."""
    by_framework: dict[str, dict[str, int]] = {}
    for figure in figures:
        by_framework.setdefault(phrases.clean(figure.framework), {})[phrases.clean(figure.what)] = figure.size
    return by_framework


def _logical(gpus: Iterable[LogicalGpu]) -> str:
    return " ".join(gpu.name for gpu in gpus)


def _names(names: Iterable[str]) -> list[str]:
    return [phrases.clean(name, longest=LONGEST_NAME) for name in names]


def _sensors(sensors: Mapping[str, float | None]) -> dict[str, int]:
    """Return what sensors tell in whole units: a view shows no more, and is told nothing when only more changes."""
    return {name: round(value) for name, value in sensors.items() if value is not None}


SENT: dict[str, Callable[[Any], Json]] = {
    "also": _names,
    "figures": _figures,
    "logical": _logical,
    "sensors": _sensors,
}
"""What makes JSON of those fields that are more than a text, a number or a record."""


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
