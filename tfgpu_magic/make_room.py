"""`--make-room`: idle notebooks of the user's whose parking makes a refusal fit are named, asked about, and parked.

They keep their state, and come back by themselves when their next cell runs and there is room again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tfgpu_magic.administrator import names
from tfgpu_magic.config import making_room
from tfgpu_magic.errors import Refused
from tfgpu_magic.host import host
from tfgpu_magic.monitor.look import look
from tfgpu_magic.parking.inside import asking
from tfgpu_magic.units import rounded
from tfgpu_magic.views import parking

if TYPE_CHECKING:
    from tfgpu_magic.config.making_room import Idle
    from tfgpu_magic.monitor.snapshot import Snapshot

MOST = 32
"""How many idle notebooks are thought of, the longest idle first: each takes a plan of its own."""

_BY_NAME = " `%tf_gpu park NAME` parks one."
_THERE = " Its button in the panel parks one, and so does the magic's word `park` in it."


def offered(
    error: Refused, way: str, snapshot: Snapshot, idle: Sequence[Idle], fits: Callable[[Sequence[Idle]], bool]
) -> Refused:
    """Return a refusal that also names the idle notebooks whose parking would make it fit; the same where none would.

    Args:
        error: the refusal.
        way: the words that park them and ask again; empty where there are none.
        snapshot: the GPUs as they are.
        idle: the notebooks that can be asked, the longest idle first.
        fits: tells whether what was refused fits when these are parked; what it raises as a refusal is a no.
    """

    def would(parked: Sequence[Idle]) -> bool:
        try:
            return fits(parked)
        except Refused:
            return False

    chosen = making_room.chosen(idle[:MOST], would)
    if not chosen:
        return error
    here = host() in ("kernel", "session")
    way, otherwise = (way, _BY_NAME) if here else ("", _THERE)
    return Refused(
        f"{error.reason}\n{_named(chosen, names(snapshot), snapshot.time)}{'' if way else otherwise}",
        verdict=error.verdict,
        more=error.more,
        lead=error.lead or "\nFits now:\n  ",
        ways=[*error.ways, *([way] if way else [])],
        crowded=error.crowded,
        parks=[one.pid for one in chosen],
    )


def make(error: Refused) -> None:
    """Park the notebooks that a refusal names, after asking once.

    Raises:
        Refused: there are none, the user says no or cannot be asked, or one of them is not parked.
    """
    if not error.parks:
        raise Refused(
            f"{error.reason}\nNo idle notebook of yours could make room: none that allows it (`c.TfGpuMagics.parking`) "
            "and runs no cell holds enough.",
            verdict=error.verdict,
            more=error.more,
            lead=error.lead,
            ways=error.ways,
        )
    known = names(look())
    called = {pid: known.get(pid, f"pid {pid}") for pid in error.parks}
    if not _agreed(_and(list(called.values()))):
        raise Refused("Nothing was parked.")
    for pid, name in called.items():
        outcome = asking.park(pid)
        if not outcome.done:
            raise Refused(parking.not_parked(outcome.refusals, name))
        print(parking.other_parked(outcome, name))


def _named(chosen: Sequence[Idle], known: Mapping[int, str], now: float) -> str:
    """Return the sentence on what parking would do."""
    parts = [f"{known.get(one.pid, f'pid {one.pid}')} ({_about(one, now)})" for one in chosen]
    one = len(parts) == 1
    return (
        f"{_and(parts)} run{'s' * one} no cell: parked, {'it' if one else 'they'} would make room, keep "
        f"{'its' if one else 'their'} state, and come back with {'its' if one else 'their'} next cell."
    )


def _about(one: Idle, now: float) -> str:
    minutes = 0 if one.since is None else int(now - one.since) // 60
    idle = f"{minutes // 60} h" if minutes >= 60 else f"{minutes} min" if minutes else ""
    return ", ".join([rounded(sum(one.held.values())), *([f"idle {idle}"] if idle else [])])


def _and(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _agreed(names: str) -> bool:
    """Ask the user, once.

    Raises:
        Refused: nobody can be asked.
    """
    try:
        answer = input(f"Park {names} to make room? [y/N] ")
    except (EOFError, RuntimeError) as error:  # ipykernel's is one of the latter
        raise Refused(f"Nobody can be asked here whether to park {names}, so nothing was parked.") from error
    return answer.strip().lower() in ("y", "yes")
