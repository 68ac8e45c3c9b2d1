"""Reads the board for the server, on a thread that may wait for /proc, and returns failures as states too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.board.history import History
from tfgpu_magic.monitor.board.live import Live
from tfgpu_magic.monitor.table import message
from tfgpu_magic.monitor.table.fetch import Watcher, failure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from logging import Logger

    from tfgpu_magic.model.rows import Notebook, Table
    from tfgpu_magic.monitor.table.message import WireState

BROKEN = "The server cannot show the GPUs: something is wrong in tfgpu_magic. Its log says what."


class BoardReader:
    """A reader of the board for the server's clients. Not thread-safe.

    Args:
        log: for what only an administrator can put right.
        every: seconds between two readings that are wanted.

    Attributes:
        settled: whether there is something to show: a living collector's reading, or why there is none.
    """

    def __init__(self, log: Logger, *, every: float = 1.0) -> None:
        self.settled = False
        self._watcher = Watcher(Live(every=every))
        self._log = log
        self._warned = ""
        self._failure: Table | None = None
        self._time = 0.0

    def see(self, notebooks: Mapping[int, Notebook], *, processes: bool = True) -> WireState | None:
        """Return the state; None while it is unchanged. Raise nothing.

        Args:
            notebooks: this server's kernels, by pid.
            processes: whether a client shows processes, as for `Live.attend`.
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
        except Exception as error:  # whatever it is: the pages must show it
            return self._failed(error)

    def full(self, sequence: int, state: WireState, every: float) -> bytes:
        """Return the full message of a state with the history before it, as `message.full`. Raise nothing."""
        try:
            history = self._watcher.live.history()
        except MonitorError:
            history = History()
        return message.full(sequence, state, history, every).encode()

    def close(self) -> None:
        """Close the board."""
        self._watcher.close()

    def _failed(self, error: Exception) -> WireState | None:
        """Return what went wrong as a state, and log it; None if the last failure was the same."""
        table = failure(error, BROKEN, self._time)
        self.settled = True
        if table == self._failure:
            return None
        self._failure = table
        ours = None if isinstance(error, MonitorError) else error
        self._log.warning("tfgpu_magic: the GPUs cannot be looked at: %s", table.error, exc_info=ours)
        return message.state(table)

    def _warn(self, trouble: str) -> None:
        """Log once what only an administrator can put right."""
        if trouble not in ("", self._warned):
            self._log.warning("tfgpu_magic: %s", trouble)
        self._warned = trouble
