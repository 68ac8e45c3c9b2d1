"""Finds the notebook that a name means among this user's others, and parks it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from tfgpu_magic.errors import MonitorError, PolicyError, Refused
from tfgpu_magic.model.answer import Document
from tfgpu_magic.model.phrases import plain
from tfgpu_magic.monitor.owners.pids import connection_file
from tfgpu_magic.monitor.table import fetch
from tfgpu_magic.parking import ask_kernel

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
        row.pid: (row.notebook and (row.notebook.path or row.notebook.title)) or row.owner
        for row in table.processes
        if row.who == "mine" and row.pid is not None and connection_file(row.pid) is not None
    }
    if table.error and not named:
        raise MonitorError(table.error)
    return one_of(name, {**named, os.getpid(): own})


def one_of(name: str, named: Mapping[int, str]) -> tuple[int, str]:
    """Return the pid of the one of some notebooks, by their pids, that a name means, and what it is called."""
    if name.isdecimal():
        return int(name), _called(int(name), named)
    found = [pid for pid, path in named.items() if f"/{path}".endswith(f"/{PurePath(name)}")]
    if len(found) == 1:
        return found[0], _called(found[0], named)
    if found:
        raise PolicyError(f"{name!r} is the name of several: {_listed(found, named)}. Write the pid instead.")
    others = {pid: _called(pid, named) for pid in sorted(named) if pid != os.getpid()}
    there = f" There are: {_listed(others, others)}." if others else ""
    raise PolicyError(f"No other notebook of yours that holds GPU memory is called {name!r}.{there}")


def park(pid: int, called: str) -> Document:
    """Park another notebook, and return what went to host memory and what stays.

    Raises:
        Refused: it is not parked; the error says why, and what to do.
        MonitorError: its kernel cannot be asked.
    """
    outcome = ask_kernel.park(pid)
    if not outcome.parked:
        raise Refused(" ".join(outcome.lines), verdict=f"{called} is not parked.")
    first, *rest = outcome.lines
    return Document(f"{called}: {first}", "All is back before its next cell runs.", *rest)


def _called(pid: int, named: Mapping[int, str]) -> str:
    return plain(PurePath(named.get(pid, "")).name, longest=_LONGEST) or f"The notebook with pid {pid}"


def _listed(pids: Iterable[int], named: Mapping[int, str]) -> str:
    return ", ".join(f"{plain(named[pid], longest=_LONGEST)} (pid {pid})" for pid in pids)
