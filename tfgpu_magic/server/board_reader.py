"""Looks at the board for the server, in whatever thread may wait for /proc, and says what went wrong as a state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.history import History
from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.watcher import Watcher, failure
from tfgpu_magic.views import message

if TYPE_CHECKING:
    from collections.abc import Mapping
    from logging import Logger

    from tfgpu_magic.monitor.owners import Notebook
    from tfgpu_magic.monitor.rows import Table
    from tfgpu_magic.views.message import State

BROKEN = "The server cannot show the GPUs: something is wrong in tfgpu_magic. Its log says what."


class BoardReader:
    """One who looks. Not thread-safe.

    Args:
        log: where that is said which a user can do nothing about.
        every: seconds between two readings that are wanted.

    Attributes:
        settled: whether there is something to show: what a collector that is there has read, or why nothing can be.
    """

    def __init__(self, log: Logger, *, every: float = 1.0) -> None:
        self.settled = False
        self._watcher = Watcher(Live(every=every))
        self._log = log
        self._warned = ""
        self._failure: Table | None = None
        self._time = 0.0

    def see(self, notebooks: Mapping[int, Notebook], *, processes: bool = True) -> State | None:
        """See how things stand; None while that is as it was. Nothing raises.

        Args:
            notebooks: this server's kernels, by pid.
            processes: whether anybody looks at processes, as for `Live.attend`.
        """
        try:
            live = self._watcher.live
            live.attend(processes=processes)
            table = self._watcher.news(notebooks)
            self._failure = None
            if table is None:
                return None
            self._warn(live.passed_over)
            self._time = table.time
            self.settled = table.time > 0 and table.stale_since is None
            return message.state(table)
        except Exception as error:  # whatever it is: the pages are to say so
            return self._failed(error)

    def full(self, sequence: int, state: State) -> bytes:
        """Write all of a state, and what was used before it. Nothing raises."""
        try:
            history = self._watcher.history()
        except MonitorError:
            history = History()
        return message.full(sequence, state, history).encode()

    def close(self) -> None:
        """Let go of the board."""
        self._watcher.close()

    def _failed(self, error: Exception) -> State | None:
        """Say what went wrong, in the log too, unless that was the last thing that was said."""
        table = failure(error, BROKEN, self._time)
        self.settled = True
        if table == self._failure:
            return None
        self._failure = table
        ours = None if isinstance(error, MonitorError) else error
        self._log.warning("tfgpu_magic: the GPUs cannot be looked at: %s", table.error, exc_info=ours)
        return message.state(table)

    def _warn(self, trouble: str) -> None:
        """Say in the log, once, what only an administrator can put right."""
        if trouble not in ("", self._warned):
            self._log.warning("tfgpu_magic: %s", trouble)
        self._warned = trouble
