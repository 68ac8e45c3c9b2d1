"""Looks at the board for the server, in whatever thread may wait for /proc, and says what went wrong as a state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.history import History
from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.viewing import Viewing
from tfgpu_magic.views import message

if TYPE_CHECKING:
    from collections.abc import Mapping
    from logging import Logger

    from tfgpu_magic.monitor.board import Look
    from tfgpu_magic.monitor.owners import Notebook
    from tfgpu_magic.monitor.rows import Table
    from tfgpu_magic.views.message import State

BROKEN = "The server cannot show the GPUs: something is wrong in tfgpu_magic. Its log says what."


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen.

    Attributes:
        state: the same as views draw it.
        table: the rows; None when nothing could be seen.
        fresh: the collector is there, and has read the GPUs.
    """

    state: State
    table: Table | None = None
    fresh: bool = False


class Looker:
    """One who looks. Not for two threads at once.

    Args:
        log: where that is said which a user can do nothing about.
        every: seconds between two readings that are wanted.
    """

    def __init__(self, log: Logger, *, every: float = 1.0) -> None:
        self._viewing = Viewing(Live(every=every))
        self._log = log
        self._warned = ""
        self._time = 0.0
        self._before: tuple[object, ...] = ()

    def see(self, notebooks: Mapping[int, Notebook], *, processes: bool = True) -> Seen | None:
        """See how things stand; None while that is as it was. Nothing raises.

        Args:
            notebooks: this server's kernels, by pid.
            processes: whether anybody looks at processes, as for `Live.attend`.
        """
        try:
            live = self._viewing.live
            live.attend(processes=processes)
            now = _news(live.look()), live.reports(), notebooks
            if now == self._before:
                return None
            sight = self._viewing.see(notebooks)
            self._before = _news(sight.look), sight.reports, notebooks
            self._warn(live.passed_over)
            self._time = sight.look.snapshot.time
            fresh = sight.look.age is not None and sight.look.stale_since is None
            return Seen(message.state(sight), sight.table, fresh)
        except MonitorError as error:
            if self._before != (str(error),):
                self._log.warning("tfgpu_magic: the GPUs cannot be looked at: %s", error)
            return self._failed(str(error))
        except Exception:
            if self._before != (BROKEN,):
                self._log.exception("tfgpu_magic: the GPUs cannot be looked at")
            return self._failed(BROKEN)

    def full(self, sequence: int, state: State) -> bytes:
        """Write all of a state, and what was used before it. Nothing raises."""
        try:
            history = self._viewing.history()
        except MonitorError:
            history = History()
        return message.full(sequence, state, history).encode()

    def close(self) -> None:
        """Let go of the board."""
        self._viewing.close()

    def _warn(self, trouble: str) -> None:
        """Say in the log, once, what only an administrator can put right."""
        if trouble not in ("", self._warned):
            self._log.warning("tfgpu_magic: %s", trouble)
        self._warned = trouble

    def _failed(self, why: str) -> Seen | None:
        if self._before == (why,):
            return None
        self._before = (why,)
        return Seen(message.trouble(why, self._time))


def _news(look: Look) -> tuple[object, ...]:
    """Tell what makes a look another than the one before."""
    # The text of no message at all may say why there is none.
    first = look.message.text if look.message.sequence == 0 else ""
    return look.message.sequence, first, look.stale_since
