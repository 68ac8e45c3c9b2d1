"""What `%tf_gpu park` and `%tf_gpu unpark` do in this process, and what another notebook's line has it do."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from tfgpu_magic import host
from tfgpu_magic.errors import MonitorError, PolicyError, Refused
from tfgpu_magic.monitor.board import parked as record
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.report_files import ReportFiles
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking import client
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.inside import asking, automatic, cells, kernel, notebook
from tfgpu_magic.parking.inside.coming_back import interruptible
from tfgpu_magic.parking.inside.showing import Shown
from tfgpu_magic.parking.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfgpu_magic.model.report import Report

OFF = "off"


def park() -> None:
    """Have this process parked when its cell has ended.

    Raises:
        Refused: parking is off here, or no cell runs.
    """
    _refuse_if_off()
    shell = host.shell()
    if hasattr(shell, "kernel"):
        if not kernel.runs_cell(shell.kernel):
            raise Refused("It is parked when a cell has ended, and no cell says this: say it in one.", verdict="")
        kernel.at_end_of_cell(shell.kernel, lambda: _parked(shell))
        return

    def at_end(_: Any) -> None:
        if cells.ended_by(shell):
            shell.events.unregister("post_run_cell", at_end)
            _parked(shell)

    shell.events.register("post_run_cell", at_end)


def check() -> str:
    """Return whether this process could be parked, and why not.

    Raises:
        Refused: it could not.
        MonitorError: the helper cannot be asked.
    """
    _refuse_if_off()
    outcome = notebook.of(host.shell()).check()
    if outcome.refusals:
        raise Refused(parking.not_parked(outcome.refusals, f"This {host.here()}"), verdict="")
    return parking.can_be_parked(host.here())


def automatically(after: float | None, *, when_needed: bool) -> None:
    """Have this process parked by itself.

    Args:
        after: seconds without a running cell; None is not any more.
        when_needed: whether only when another one waits for room.

    Raises:
        Refused: parking is off here.
    """
    if after is not None:
        _refuse_if_off()
    automatic.set_up(host.shell(), after, when_needed=when_needed)


def park_other(name: str) -> str:
    """Park another notebook, and return what has become of it.

    Raises:
        PolicyError: there is none of that name, or several are.
        Refused: it was not parked.
        MonitorError: it cannot be asked.
    """
    reports = _reports()
    pid = _pid(name, {one.pid: one.notebook for one in reports.values()}, "No other notebook of yours")
    called = PurePath(reports[pid].notebook).name or f"pid {pid}"
    outcome = Outcome(refusals=(why.BUSY(),)) if reports[pid].busy else asking.park(pid)
    if outcome.refusals:
        raise Refused(parking.not_parked(outcome.refusals, called), verdict="")
    return parking.other_parked(outcome, called)


def unpark_other(name: str) -> str:
    """Bring another process back, whoever it is of this user's, and return what has become of it.

    Raises:
        PolicyError: none of that name is parked, or several are.
        Refused: it does not come back.
        MonitorError: the helper cannot be asked.
    """
    entries, known = _parked_entries(), _parked_names()
    pid = _pid(name, known, "Nothing that is parked")
    called = PurePath(known[pid]).name or f"pid {pid}"
    shown = Shown(host.shell())
    with interruptible():
        outcome = client.unpark(pid, held=entries[pid].held, tell=shown)
    if outcome.refusals:
        raise Refused(f"{called} does not come back. {parking.reasons(outcome.refusals)}", verdict="")
    return parking.other_back(outcome, called)


def names() -> list[str]:
    """Return the names of this user's other notebooks."""
    return [PurePath(one.notebook).name for one in _reports().values() if one.notebook]


def parked_names() -> list[str]:
    """Return the names of what is parked."""
    return [PurePath(name).name for name in _parked_names().values() if name]


def _reports() -> dict[int, Report]:
    """Return the reports of this user's other notebooks, by pid."""
    with BoardDirectory() as place:
        files = ReportFiles(place)
        try:
            return {one.pid: one for one in files.read() if one.busy is not None and one.pid > 0}
        finally:
            files.close()


def _parked_entries() -> dict[int, record.Entry]:
    with BoardDirectory() as place:
        return {one.pid: one for one in record.read_all(place).entries.values() if one.parked}


def _parked_names() -> dict[int, str]:
    """Return what is parked by pid, each as it is called now: the record has what it was called then."""
    reports = _reports()
    return {pid: reports[pid].notebook if pid in reports else one.name for pid, one in _parked_entries().items()}


def _parked(shell: Any) -> Mapping[str, str]:
    """Park this process, and say below its cell what came of it."""
    shown = Shown(shell)
    try:
        outcome = notebook.of(shell).park(shown)
        if outcome.refusals:
            print(parking.not_parked(outcome.refusals, f"This {host.here()}"), file=sys.stderr, flush=True)
        else:
            shown.say(parking.parked(outcome, host.here()))
    except MonitorError as error:
        print(f"This {host.here()} is not parked, as far as is known. {error}", file=sys.stderr, flush=True)
    return {}


def _refuse_if_off() -> None:
    if host.magics(host.shell()).parking == OFF:
        raise Refused(parking.off(), verdict="Not parked.")


def _pid(name: str, named: Mapping[int, str], nobody: str) -> int:
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
