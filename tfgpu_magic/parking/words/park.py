"""`%tf_gpu park`: moves a notebook's GPU state to host memory, from where its next cell brings it back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

from tfgpu_magic import host
from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.model.report import Report
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking import ask_kernel, reported
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.inside import automatic, ipython, notebook
from tfgpu_magic.parking.inside.showing import Shown
from tfgpu_magic.parking.messages import ParkOutcome
from tfgpu_magic.policy.arguments import separate
from tfgpu_magic.policy.word import Line
from tfgpu_magic.units import seconds

_AUTO, _NEEDED, _TO, _CHECK, _OFF, _DISK = "--auto", "--when-needed", "--to", "--check", "off", "disk"
_TIMES = ("10m", "20m", "1h", _OFF)


def answer(line: Line) -> None:
    """Park what the line says, now or by itself; `PolicyError`, `Refused` and `MonitorError` say why it is not done."""
    known = {_AUTO: f"{_AUTO} after which time?", _NEEDED: "", _TO: f"{_TO} where?", _CHECK: ""}
    name, flags = separate(line.rest.split(), known, line.word.forms)
    by_itself = _AUTO in flags and flags.keys() <= {_AUTO, _NEEDED}
    other = list(flags.items()) in ([], [(_CHECK, "")], [(_TO, _DISK)])
    if (name and flags) or not (by_itself or other):
        raise PolicyError(f"`park {line.rest}` cannot be done.{line.word.forms}")
    shell, here = host.shell(), host.here()
    if name:
        print(_park_other(" ".join(name)))
    elif flags.get(_AUTO) == _OFF:
        host.magics(shell).park_itself(None)
        print(f"This {here} is not parked by itself any more.")
    elif host.magics(shell).parking == _OFF:
        raise Refused(parking.reason(why.OFF()), verdict="Not parked.")
    elif _AUTO in flags:
        after = seconds(flags[_AUTO])
        host.magics(shell).park_itself(automatic.start(shell, after, when_needed=_NEEDED in flags))
        when = " and another one waits for its room" if _NEEDED in flags else ""
        print(f"This {here} is parked by itself when no cell has run for {flags[_AUTO]}{when}.")
    elif _CHECK in flags:
        outcome = notebook.of(shell).check()
        if outcome.refusals:
            raise Refused(parking.not_parked(outcome.refusals, f"This {here}"), verdict="")
        print(parking.can_be_parked(outcome, here))
    else:
        ipython.at_end_of_cell(shell, partial(_park, shell, to_disk=_TO in flags))


def offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return times, or the names of other notebooks."""
    if tokens:
        return {_AUTO: [*_TIMES], _TO: [_DISK]}.get(tokens[-1], [])
    return [PurePath(one.notebook).name for one in reports().values() if one.notebook]


def _park_other(name: str) -> str:
    """Park another notebook, and return what has become of it."""
    known = reports()
    pid, called = one_of(name, {one.pid: one.notebook for one in known.values()}, "No other notebook of yours")
    outcome = ParkOutcome(refusals=(why.BUSY(),)) if known[pid].busy else ask_kernel.ask(pid, "park") or ParkOutcome()
    if outcome.refusals:
        raise Refused(parking.not_parked(outcome.refusals, called), verdict="")
    return parking.other_parked(outcome, called)


def _park(shell: Any, *, to_disk: bool) -> None:
    """Park this process, and say below its cell what came of it."""
    shown = Shown(shell)
    outcome = notebook.of(shell).park(shown, to_disk=to_disk)
    if outcome.refusals:
        print(parking.not_parked(outcome.refusals, f"This {host.here()}"), file=sys.stderr, flush=True)
    else:
        shown.say(parking.parked(outcome, host.here()))


def reports() -> dict[int, Report]:
    """Return the reports of this user's other notebooks, by pid."""
    return {one.pid: one for one in reported.reports() if one.busy is not None and one.pid > 0}


def one_of(name: str, named: Mapping[int, str], nobody: str) -> tuple[int, str]:
    """Return the one process that a name means, its pid, its path, or the end of that; and what it is called."""
    end = f"/{PurePath(name)}"
    found = [pid for pid, path in named.items() if name == str(pid) or f"/{path}".endswith(end)]
    if len(found) == 1:
        return found[0], PurePath(named[found[0]]).name or f"pid {found[0]}"
    if found:
        raise PolicyError(f"{name!r} is the name of several: {_listed(found, named)}. Say the pid.")
    there = f" There are: {_listed(named, named)}." if named else ""
    raise PolicyError(f"{nobody} is called {name!r}.{there}")


def _listed(pids: Iterable[int], named: Mapping[int, str]) -> str:
    return ", ".join(f"{PurePath(named[pid]).name or 'without a name'} ({pid})" for pid in pids)
