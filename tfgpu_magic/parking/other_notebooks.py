"""Finds another notebook of this user's, and asks its kernel to park itself: only it can.

The kernel is asked by a silent message that evaluates an expression: no page shows it, no history keeps it, and it
waits for the end of a cell that runs. Source: Jupyter's messaging protocol, "Execute".
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from tfgpu_magic.errors import MonitorError, PolicyError, Refused
from tfgpu_magic.ground.answer import Document
from tfgpu_magic.ground.message import msg, paragraph
from tfgpu_magic.ground.phrases import clean
from tfgpu_magic.ground.report import Report
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFiles
from tfgpu_magic.machine.owners.pids import connection_file, start_time
from tfgpu_magic.parking.outcome import BUSY, MIME, UNLOADED, ParkOutcome
from tfgpu_magic.tell import fetch

_ALREADY = msg("It is parked already.")

BEGIN_TIMEOUT = 5.0
"""Seconds in which the other kernel must begin; later it would surprise whoever works there by then."""
ANSWER_TIMEOUT = 300.0
"""Seconds in which it must have answered: to copy all of a large GPU takes a minute."""

_PARKED = "Parked"  # the name of the error by which `kernel.ipython` answers for a notebook that is parked already
_ASK = "__import__('tfgpu_magic.parking.this_notebook', fromlist=['park_for_another']).park_for_another"
_POLL = 0.5  # seconds between two looks whether the other kernel is there
_LONGEST = 120  # characters of a name


def find(name: str, own: str) -> tuple[int, str]:
    """Find the one notebook of this user's that a name means.

    Args:
        name: the end of its path, or the pid of its kernel.
        own: this notebook's path; empty if it is not known.

    Returns:
        The pid of its kernel, which may be this process, and what it is called.

    Raises:
        PolicyError: it is the name of none, or of several.
        MonitorError: no GPU can be looked at.
    """
    table = fetch.table()
    named = {
        owner.pid: (owner.notebook and (owner.notebook.path or owner.notebook.title)) or owner.text
        for owner in (row.owner for row in table.processes)
        if owner.who == "mine" and connection_file(owner.pid) is not None
    }
    if table.error and not named:
        raise MonitorError(table.error)
    return find_among(name, {**named, os.getpid(): own})


def find_among(name: str, named: Mapping[int, str]) -> tuple[int, str]:
    """Return the pid of the one of some notebooks, by their pids, that a name means, and what it is called."""
    if name.isdecimal():
        return int(name), _display_name(int(name), named)
    found = [pid for pid, path in named.items() if f"/{path}".endswith(f"/{PurePath(name)}")]
    if len(found) == 1:
        return found[0], _display_name(found[0], named)
    if found:
        several = "{name} is the name of several: {notebooks}. Write the pid instead."
        raise PolicyError(msg(several, name=repr(name), notebooks=_list_text(found, named)))
    others = {pid: _display_name(pid, named) for pid in sorted(named) if pid != os.getpid()}
    there = msg("There are: {notebooks}.", notebooks=_list_text(others, others)) if others else None
    nobody = msg("No other notebook of yours that holds GPU memory is called {name}.", name=repr(name))
    raise PolicyError(paragraph([nobody, there]))


def park(pid: int, name: str) -> Document:
    """Park another notebook, and return what went to host memory and what stays.

    Raises:
        Refused: it is not parked; the error says why, and what to do.
        MonitorError: its kernel cannot be asked.
    """
    outcome = ask_to_park(pid)
    if not outcome.parked:
        raise Refused(paragraph(outcome.lines), verdict=msg("{called} is not parked.", called=name))
    first, *rest = outcome.lines
    back = msg("All is back before its next cell runs.")
    return Document(msg("{called}: {first}", called=name, first=first), back, *rest)


def ask_to_park(pid: int) -> ParkOutcome:
    """Make another notebook of this user's park itself, and wait until it has; it does nothing for a late question.

    Args:
        pid: the process of its kernel.

    Raises:
        MonitorError: its kernel cannot be asked.
    """
    path, start = connection_file(pid), start_time(pid)
    if path is None or start is None:
        return ParkOutcome(False, [msg("Process {pid} is no kernel of a notebook of yours.", pid=pid)])
    try:
        return _ask(path, pid, start)
    except Exception as error:  # whatever is in that file, or is said by a kernel of another version
        raise MonitorError(msg("The kernel with pid {pid} cannot be asked: {error}", pid=pid, error=error)) from error


def reports() -> Sequence[Report]:
    """Return what this user's other processes report of themselves."""
    with BoardDirectory() as place:
        return ReportFiles(place).read()


def _ask(path: Path, pid: int, start: int) -> ParkOutcome:
    from jupyter_client.blocking.client import BlockingKernelClient  # it is installed wherever kernels are

    begun = time.monotonic()
    client = BlockingKernelClient(connection_file=str(path))
    try:
        client.load_connection_file()
        client.shell_channel.start()
        asks = {"parked": f"{_ASK}({time.time() + BEGIN_TIMEOUT!r})"}
        asked = client.execute("", silent=True, allow_stdin=False, stop_on_error=False, user_expressions=asks)
        while start_time(pid) == start and time.monotonic() - begun < ANSWER_TIMEOUT:
            try:
                message = client.get_shell_msg(timeout=_POLL)
            except queue.Empty:
                if time.monotonic() - begun > BEGIN_TIMEOUT and _runs_a_cell(pid):
                    return ParkOutcome(False, [BUSY])
            else:
                if message["parent_header"].get("msg_id") == asked:
                    return _outcome(message["content"])
    finally:
        client.stop_channels()
    if start_time(pid) != start:
        return ParkOutcome(False, [msg("Its kernel has ended.")])
    silent = "Its kernel has not answered within {seconds} seconds, and may still park."
    return ParkOutcome(False, [msg(silent, seconds=f"{ANSWER_TIMEOUT:.0f}")])


def _outcome(reply: Mapping[str, Any]) -> ParkOutcome:
    if reply.get("ename") == _PARKED:
        return ParkOutcome(True, [_ALREADY])
    said = reply.get("user_expressions", {}).get("parked", {})
    if (found := said.get("data", {}).get(MIME)) is not None:
        return ParkOutcome(found["parked"], [msg("{line}", line=line) for line in found["lines"]])
    if said.get("ename") == ModuleNotFoundError.__name__:
        return ParkOutcome(False, [UNLOADED])
    why = said.get("evalue") or reply.get("evalue") or "it runs no Python"
    return ParkOutcome(False, [msg("Its kernel cannot park: {why}.", why=why)])


def _runs_a_cell(pid: int) -> bool:
    """Return whether a kernel has not begun with our question; one without the extension has nothing to do for it."""
    report = next((one for one in reports() if one.pid == pid), None)
    return report is None or bool(report.busy)


def _display_name(pid: int, named: Mapping[int, str]) -> str:
    return clean(PurePath(named.get(pid, "")).name, longest=_LONGEST) or f"The notebook with pid {pid}"


def _list_text(pids: Iterable[int], named: Mapping[int, str]) -> str:
    return ", ".join(f"{clean(named[pid], longest=_LONGEST)} (pid {pid})" for pid in pids)
