"""Writes rows as the JSON that live views draw: the whole state, and the changes since as a merge patch.

Unknown values are left out, never null or 0; sizes are bytes, times seconds since the epoch. A tick has a JSON Merge
Patch (RFC 7386), which makes the next state from the one before. `model.rows` decides what the rows have. The page's
types are in `labextension/src/view/wire.ts`, which a test compares with the types here, field by field.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from tfgpu_magic.model import phrases

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import NotRequired  # missing in Python 3.10; mypy always has it

    from tfgpu_magic.model.report import Figure
    from tfgpu_magic.model.rows import GpuRow, ProcessRow, Table, Who
    from tfgpu_magic.monitor.board.history import History

VERSION = 5
"""The version of the messages; a view of another version shows a notice."""
LONGEST_NAME = 120
"""Characters of each name that are sent; views show fewer."""


class WireGpu(TypedDict):
    """A GPU or MIG instance."""

    uuid: NotRequired[str]
    name: str
    used: NotRequired[int]
    total: NotRequired[int]
    free: NotRequired[int]
    utilisation: NotRequired[int]
    temperature: NotRequired[int]
    power: NotRequired[int]
    error: NotRequired[str]
    mig: NotRequired[Literal[True]]
    instance: NotRequired[Literal[True]]
    unified: NotRequired[Literal[True]]
    logical: NotRequired[str]
    policy: NotRequired[str]
    others: NotRequired[int]
    rest: NotRequired[str]
    limit: NotRequired[int]


class WireRow(TypedDict):
    """A process on a GPU, or all of another user's there, or all that could not be named together."""

    gpu: str
    pid: NotRequired[int]
    kind: NotRequired[str]
    who: Who
    owner: str
    path: NotRequired[str]
    kernel: NotRequired[str]
    also: NotRequired[list[str]]
    state: NotRequired[str]
    active: NotRequired[float]
    child: NotRequired[str]
    call: NotRequired[Literal[True]]
    tone: NotRequired[int]
    held: NotRequired[int]
    spare: NotRequired[Literal[True]]
    utilisation: NotRequired[int]
    unused: NotRequired[float]
    began: NotRequired[int]
    parked: NotRequired[int]
    back: NotRequired[float]
    policy: NotRequired[str]
    figures: NotRequired[dict[str, dict[str, int]]]


class WireState(TypedDict):
    """The state that a view shows: GPUs by label, rows by GPU and pid, and what is wrong."""

    time: float
    stale: NotRequired[float]
    every: NotRequired[int]
    error: NotRequired[str]
    absent: NotRequired[Literal[True]]
    simulated: NotRequired[Literal[True]]
    notes: NotRequired[list[str]]
    gpus: dict[str, WireGpu]
    rows: dict[str, WireRow]


class Past(TypedDict):
    """The history: times, and the most that was used of each GPU until the next; null where it was not known."""

    times: list[float]
    used: dict[str, list[int | None]]


class OwnHours(TypedDict):
    """What the user's processes have held of this machine's GPUs since a time."""

    since: float
    held_byte_seconds: float
    held_unused_byte_seconds: float
    unknown_process_seconds: float


class Full(TypedDict):
    """The message that a view begins with."""

    version: int
    type: Literal["full"]
    sequence: int
    state: WireState
    history: Past
    every: NotRequired[float]
    hours: NotRequired[OwnHours]


class Tick(TypedDict):
    """The message that brings a view from the state `base` to the next."""

    version: int
    type: Literal["tick"]
    sequence: int
    base: int
    patch: object


def state(table: Table) -> WireState:
    """Return a table as a state."""
    return cast("WireState", _known({
        "time": round(table.time, 3),
        "stale": None if table.stale_since is None else round(table.stale_since, 3),
        "every": every if (every := round(table.every)) > 1 else None,
        "error": table.error and phrases.safe(table.error),
        "absent": table.absent or None,
        "simulated": table.simulated or None,
        "notes": [phrases.safe(str(note)) for note in (table.summary, *table.notes) if note] or None,
        "gpus": {row.gpu: _gpu(row) for row in table.gpus},
        "rows": _rows(table),
    }))  # fmt: skip


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
    return _text(cast("Full", message | _known({"every": every, "hours": hours})))


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
    return {
        "times": [round(times[index], 1) for index in chosen],
        "used": {
            name: [_highest(figures[index : index + step]) for index in chosen]
            for name, figures in history.used.items()
        },
    }


def _highest(figures: Iterable[int | None]) -> int | None:
    return max((figure for figure in figures if figure is not None), default=None)


def _text(message: Full | Tick) -> str:
    return json.dumps(message, separators=(",", ":"))


def _gpu(row: GpuRow) -> WireGpu:
    others = next((share for share in row.shares if share.who == "others"), None)
    return cast("WireGpu", _known({
        "uuid": row.uuid,
        "name": phrases.plain(row.name),
        "used": row.used,
        "total": row.total,
        "free": row.free,
        "utilisation": row.utilisation,
        "temperature": row.temperature,
        "power": None if row.power is None else round(row.power / 1000),
        "error": row.error and phrases.safe(row.error),
        "mig": row.mig or None,
        "instance": row.instance or None,
        "unified": row.unified or None,
        "logical": row.logical or None,
        "policy": row.policy or None,
        "others": others and others.size,
        "rest": others.text if others and others.text != "others" else None,
        "limit": row.limit,
    }))  # fmt: skip


def _rows(table: Table) -> dict[str, WireRow]:
    return {f"{row.gpu} {'rest' if row.pid is None else row.pid}": _row(row, table.time) for row in table.processes}


def _row(row: ProcessRow, now: float) -> WireRow:
    use, notebook = row.use, row.notebook
    served = notebook if notebook and notebook.kernel else None
    return cast("WireRow", _known({
        "gpu": row.gpu,
        "pid": row.pid if row.pid and row.pid > 0 else None,
        "kind": row.kind or None,
        "who": row.who,
        "owner": phrases.plain(row.owner, longest=LONGEST_NAME),
        # A path on another server, or on none, leads to no file here.
        "path": (served.path or None) if served else None,
        "kernel": served.kernel if served else None,
        "also": [phrases.plain(name, longest=LONGEST_NAME) for name in served.also] or None if served else None,
        "state": (notebook.state or None) if notebook else None,
        "active": round(notebook.active, 1) if notebook and notebook.active is not None else None,
        "child": phrases.plain(row.child) or None,
        "call": row.call or None,
        "tone": row.tone,
        "held": row.known,
        "spare": row.spare(now) or None,
        "utilisation": row.utilisation,
        "unused": None if row.unused is None else round(row.unused),
        "began": row.began if row.kernel is not None and not served else None,
        "parked": use.parked if use else None,
        "back": round(use.back, 1) if use and use.back is not None else None,
        "policy": (use.policy or None) if use else None,
        "figures": _figures(use.figures) or None if use else None,
    }))  # fmt: skip


def _figures(figures: Iterable[Figure]) -> dict[str, dict[str, int]]:
    """Return figures by framework and name, since a merge patch would have all of a list when one has changed."""
    by_framework: dict[str, dict[str, int]] = {}
    for figure in figures:
        by_framework.setdefault(phrases.plain(figure.framework), {})[phrases.plain(figure.what)] = figure.size
    return by_framework


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
