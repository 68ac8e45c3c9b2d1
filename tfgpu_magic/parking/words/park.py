"""`%tf_gpu park`: moves a notebook's GPU state to host memory, from where its next cell brings it back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from tfgpu_magic import host
from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.model.report import Report
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.report_files import ReportFiles
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking import ask_kernel
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
    """Park what the line says, now or by itself."""
    known = {_AUTO: f"{_AUTO} after which time?", _NEEDED: "", _TO: f"{_TO} where?", _CHECK: ""}
    name, flags = separate(line.rest.split(), known, line.word.forms)
    by_itself = _AUTO in flags and flags.keys() <= {_AUTO, _NEEDED}
    other = list(flags.items()) in ([], [(_CHECK, "")], [(_TO, _DISK)])
    if (name and flags) or not (by_itself or other):
        raise PolicyError(f"`park {line.rest}` cannot be done.{line.word.forms}")
    if _CHECK in flags:
        print(_check())
    elif flags.get(_AUTO) == _OFF:
        _automatically(None, when_needed=False)
        print(f"This {host.here()} is not parked by itself any more.")
    elif _AUTO in flags:
        _automatically(seconds(flags[_AUTO]), when_needed=_NEEDED in flags)
        when = " and another one waits for its room" if _NEEDED in flags else ""
        print(f"This {host.here()} is parked by itself when no cell has run for {flags[_AUTO]}{when}.")
    elif name:
        print(_park_other(" ".join(name)))
    else:
        _park(to_disk=_TO in flags)


def offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return times, or the names of other notebooks."""
    if tokens[-1:] == [_AUTO]:
        return list(_TIMES)
    if tokens[-1:] == [_TO]:
        return [_DISK]
    return [] if tokens else list(_names())


def _park(*, to_disk: bool) -> None:
    """Have this process parked when its cell has ended.

    Raises:
        Refused: parking is off here, or no cell runs.
    """
    _refuse_if_off()
    shell = host.shell()
    if hasattr(shell, "kernel"):
        if not ipython.runs_cell(shell.kernel):
            raise Refused("It is parked when a cell has ended, and no cell says this: say it in one.", verdict="")
        ipython.at_end_of_cell(shell.kernel, lambda: _parked(shell, to_disk=to_disk))
        return

    def at_end(_: Any) -> None:
        if ipython.ended_by(shell):
            shell.events.unregister("post_run_cell", at_end)
            _parked(shell, to_disk=to_disk)

    shell.events.register("post_run_cell", at_end)


def _check() -> str:
    """Return whether this process could be parked, and why not.

    Raises:
        Refused: it could not.
    """
    _refuse_if_off()
    outcome = notebook.of(host.shell()).check()
    if outcome.refusals:
        raise Refused(parking.not_parked(outcome.refusals, f"This {host.here()}"), verdict="")
    return parking.can_be_parked(outcome, host.here())


def _automatically(after: float | None, *, when_needed: bool) -> None:
    """Have this process parked by itself.

    Args:
        after: seconds without a running cell; None is not any more.
        when_needed: whether only when another one waits for room.

    Raises:
        Refused: parking is off here.
    """
    if after is not None:
        _refuse_if_off()
    shell = host.shell()
    host.magics(shell).park_itself(None if after is None else automatic.start(shell, after, when_needed=when_needed))


def _park_other(name: str) -> str:
    """Park another notebook, and return what has become of it.

    Raises:
        PolicyError: there is none of that name, or several are.
        Refused: it was not parked.
        MonitorError: it cannot be asked.
    """
    known = reports()
    pid = pid_of(name, {one.pid: one.notebook for one in known.values()}, "No other notebook of yours")
    called = PurePath(known[pid].notebook).name or f"pid {pid}"
    outcome = ParkOutcome(refusals=(why.BUSY(),)) if known[pid].busy else ask_kernel.park(pid)
    if outcome.refusals:
        raise Refused(parking.not_parked(outcome.refusals, called), verdict="")
    return parking.other_parked(outcome, called)


def _names() -> list[str]:
    """Return the names of this user's other notebooks."""
    return [PurePath(one.notebook).name for one in reports().values() if one.notebook]


def _parked(shell: Any, *, to_disk: bool) -> Mapping[str, str]:
    """Park this process, and say below its cell what came of it."""
    shown = Shown(shell)
    outcome = notebook.of(shell).park(shown, to_disk=to_disk)
    if outcome.refusals:
        print(parking.not_parked(outcome.refusals, f"This {host.here()}"), file=sys.stderr, flush=True)
    else:
        shown.say(parking.parked(outcome, host.here()))
    return {}


def _refuse_if_off() -> None:
    if host.magics(host.shell()).parking == _OFF:
        raise Refused(parking.off(), verdict="Not parked.")


def reports() -> dict[int, Report]:
    """Return the reports of this user's other notebooks, by pid."""
    with BoardDirectory() as place:
        files = ReportFiles(place)
        try:
            return {one.pid: one for one in files.read() if one.busy is not None and one.pid > 0}
        finally:
            files.close()


def pid_of(name: str, named: Mapping[int, str], nobody: str) -> int:
    """Return the process that a name means: its pid, its path, or the end of that.

    Raises:
        PolicyError: it means none, or several.
    """
    found = [pid for pid, path in named.items() if name in (str(pid), path) or _ends_with(path, name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise PolicyError(f"{name!r} is the name of several: {_listed(found, named)}. Say the pid.")
    there = f" There are: {_listed(named, named)}." if named else ""
    raise PolicyError(f"{nobody} is called {name!r}.{there}")


def _ends_with(path: str, name: str) -> bool:
    parts, end = PurePath(path).parts, PurePath(name).parts
    return bool(end) and parts[-len(end) :] == end


def _listed(pids: Iterable[int], named: Mapping[int, str]) -> str:
    return ", ".join(f"{PurePath(named[pid]).name or 'without a name'} ({pid})" for pid in pids)
