"""Names, in a refusal, an idle notebook of the user's whose parking would make room for what was refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import PurePath

from tfgpu_magic.engine.other_processes import OtherProcesses
from tfgpu_magic.errors import Refused
from tfgpu_magic.host import host
from tfgpu_magic.model.report import Report
from tfgpu_magic.model.snapshot import Snapshot
from tfgpu_magic.parking import checks, facts
from tfgpu_magic.units import rounded

MOST = 8  # how many idle notebooks are tried, the longest idle first: each takes a plan of its own


def name_one(
    error: Refused, snapshot: Snapshot, others: OtherProcesses, fits: Callable[[Snapshot, OtherProcesses], bool]
) -> None:
    """Add to a refusal the idle notebook that would make room, and the line that parks it; nothing where none would."""
    idle = [report for report in others.present if report.parks and report.busy is False]
    for one in sorted(idle, key=lambda report: math.inf if report.active is None else report.active)[:MOST]:
        held = {row.gpu: row.held for row in snapshot.processes if row.pid == one.pid and row.held}
        there = [facts.given_back(gpu, snapshot) for gpu in snapshot.gpus if gpu.label in held]
        returns = not any(list(checks.no_way_back(gpu, held[gpu.label])) for gpu in there)
        try:
            then = others._replace(parked=others.parked | {one.pid})
            if held and returns and fits(snapshot.without({one.pid}, held), then):
                error.reason = f"{error.reason}\n{_named(one, sum(held.values()), snapshot.time)}"
                return
        except Refused:  # it does not fit
            continue


def _named(one: Report, held: int, now: float) -> str:
    """Return the sentences on a notebook and on what parks it."""
    name = PurePath(one.notebook).name or f"pid {one.pid}"
    minutes = 0 if one.active is None else int(now - one.active) // 60
    idle = f", idle {minutes // 60} h" if minutes >= 60 else f", idle {minutes} min" if minutes else ""
    parks = (
        f"`%tf_gpu park {name.removeprefix('pid ')}` parks it."
        if host() in ("kernel", "session")
        else "Its button in the panel parks it, and so does the magic's word `park` in it."
    )
    return (
        f"{name} ({rounded(held)}{idle}) runs no cell: parked, it would make room, keep its state, and come back with "
        f"its next cell. {parks}"
    )
