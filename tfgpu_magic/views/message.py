"""Rows to the JSON that live views draw: the state whole, and what changed since as a merge patch.

Unknown is left out, never null or 0; sizes are bytes and times seconds since the epoch. A tick is a JSON Merge Patch
(RFC 7386), so that whoever has the state before has the one after.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tfgpu_magic.views import words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.monitor.history import History
    from tfgpu_magic.monitor.rows import GpuRow, ProcessRow, Table

VERSION = 1
"""Of the messages; a view that does not know it says so."""
LONGEST = 120
"""Characters of a name that are sent: views show fewer."""

State = dict[str, Any]
"""What a view shows, as JSON: `time`, `gpus` by label, `rows` by GPU and pid, and what is not well."""


def state(table: Table) -> State:
    """Write what there is to see as JSON."""
    return _known({
        "time": round(table.time, 3),
        "stale": None if table.stale_since is None else round(table.stale_since, 3),
        "every": every if (every := round(table.every)) > 1 else None,
        "error": table.error and words.plain(table.error, longest=400),
        "absent": table.absent or None,
        "simulated": table.simulated or None,
        "notes": [words.plain(note, longest=400) for note in (table.summary, *table.notes) if note] or None,
        "gpus": {row.gpu: _gpu(row) for row in table.gpus},
        "rows": _rows(table),
    })  # fmt: skip


def patch(before: State, after: State) -> State:
    """Say what has changed, as a JSON Merge Patch: null takes a member away. Neither state has nulls of its own."""
    changes: State = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        old = before.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            if inner := patch(old, value):
                changes[name] = inner
        elif name not in before or old != value:
            changes[name] = value
    return changes


def full(sequence: int, state: State, history: History) -> str:
    """Write the message that a view begins with.

    Args:
        sequence: a number that rises from state to state.
        state: what is to be seen.
        history: what was used before.
    """
    return _message("full", sequence, state=state, history=past(history))


def paced(text: bytes, every: float) -> bytes:
    """Say in a full message after how many seconds the next one comes: the rest of it is the same for all."""
    return text[:-1] + b',"every":%g}' % every


def tick(sequence: int, base: int, changes: State) -> str:
    """Write the message that brings a view from the state `base` to the state `sequence`."""
    return _message("tick", sequence, base=base, patch=changes)


def past(history: History, *, seconds: float = 3600.0, most: int = 2000) -> dict[str, Any]:
    """Write the history as JSON: here an unknown figure is null, since each has its place.

    Args:
        history: what was used.
        seconds: how much of it, from its end.
        most: how many points of that, evenly chosen.
    """
    end = history.times[-1] if history.times else 0.0
    recent = [index for index, time in enumerate(history.times) if end - time <= seconds]
    chosen = recent[:: -(-len(recent) // most)] if recent else []
    return {
        "times": [round(history.times[index], 1) for index in chosen],
        "used": {name: [figures[index] for index in chosen] for name, figures in history.used.items()},
    }


def _message(kind: str, sequence: int, **fields: object) -> str:
    return json.dumps({"version": VERSION, "type": kind, "sequence": sequence, **fields}, separators=(",", ":"))


def _gpu(row: GpuRow) -> State:
    return _known({
        "uuid": row.uuid,
        "name": words.plain(row.name),
        "used": row.used,
        "total": row.total,
        "free": row.free,
        "error": row.error and words.plain(row.error, longest=100),
        "mig": row.mig or None,
        "unified": row.unified or None,
        "logical": row.logical or None,
        "policy": row.policy or None,
        "rest": next((share.text for share in row.shares if share.who == "others" and share.text != "others"), None),
    })  # fmt: skip


def _rows(table: Table) -> dict[str, State]:
    return {f"{row.gpu} {'rest' if row.pid is None else row.pid}": _row(row) for row in table.processes}


def _row(row: ProcessRow) -> State:
    use, notebook = row.use, row.notebook
    torch = use.torch if use else None
    served = notebook if notebook and notebook.kernel else None
    return _known({
        "gpu": row.gpu,
        "pid": row.pid if row.pid and row.pid > 0 else None,
        "kind": row.kind or None,
        "who": row.who,
        "owner": words.plain(row.owner, longest=LONGEST),
        # A path of another server, or of none, leads nowhere here.
        "path": (served.path or None) if served else None,
        "kernel": served.kernel if served else None,
        "also": [words.plain(name, longest=LONGEST) for name in served.also] or None if served else None,
        "state": (notebook.state or None) if notebook else None,
        "active": round(notebook.active, 1) if notebook and notebook.active is not None else None,
        "child": row.child or None,
        "call": row.call or None,
        "tone": row.tone,
        "held": row.held,
        # What it says itself, where the driver cannot list it: of all its frameworks together.
        "taken": row.known if row.held is None else None,
        "in_use": use.in_use if use else None,
        "peak": use.peak if use else None,
        "policy": (use.policy or None) if use else None,
        "torch_allocated": torch.allocated if torch else None,
        "torch_reserved": torch.reserved if torch else None,
    })  # fmt: skip


def _known(fields: Mapping[str, Any]) -> State:
    return {name: value for name, value in fields.items() if value is not None}
