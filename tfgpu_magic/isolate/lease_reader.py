"""Reads from the lease table what isolated calls have of the GPUs, for processes that make none; it changes nothing."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from tfgpu_magic.config.promises import Promise
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.isolate.lease_file import ABSENT, NAME, Entry, is_alive, written
from tfgpu_magic.monitor.directory import BoardDirectory

_TRIES = 3  # no lock is taken, so a text may be half written now and then

_files: list[int] = []
"""The files that were read. They stay open: to close one would release the locks that this process may have on it."""


def leases(place: BoardDirectory) -> Iterator[Promise]:
    """Give what each call has leased, in the order of asking. A call that waits has nothing yet, and takes its turn.

    Args:
        place: where the table is.
    """
    file = _file(place)
    for entry in () if file is None else _entries(file):
        for claim in entry.claims:
            yield Promise(gpu=claim.gpu, pid=claim.pid, size=claim.size, fair=claim.fair, asked=entry.came)


def needed(place: BoardDirectory) -> set[str]:
    """Return the GPUs for which a call, or a notebook that comes back from parking, waits now, as `claims.key` has it.

    Args:
        place: where the table is.
    """
    file, now = _file(place), time.monotonic()
    entries = () if file is None else _entries(file)
    return {gpu for one in entries if not one.claims and now - one.seen < ABSENT for gpu in one.needs}


def _entries(file: int) -> list[Entry]:
    """Return the calls whose processes are alive."""
    for _ in range(_TRIES):
        page, text = written(file)
        if text:
            return [entry for entry in page.entries.values() if is_alive(file, entry)]
    return []


def _file(place: BoardDirectory) -> int | None:
    """Return the descriptor of the table; None where there is none."""
    for file in _files:
        if place.holds(NAME, file):
            return file
    with contextlib.suppress(FileNotFoundError, MonitorError):
        _files.append(place.open(NAME, os.O_RDWR))
        return _files[-1]
    return None
