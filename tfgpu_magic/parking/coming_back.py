"""One attempt to bring a process's GPU state back, made on a thread of its own, for which any number of others wait."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.parking import client

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgpu_magic.parking.messages import ParkOutcome, Progress
    from tfgpu_magic.parking.record import HeldMemory

_POLL = 0.2  # seconds between two looks at the progress


class ComingBack:
    """The attempt. It is called off when nobody waits for it any more.

    Args:
        pid: the process; None is this one.
        held: what it held when it was parked, where that is known.
        settle: is called with what has come of it, before anybody is told.

    Attributes:
        over: whether it has ended.
        progress: how it is getting on.
    """

    def __init__(
        self,
        pid: int | None = None,
        held: tuple[HeldMemory, ...] = (),
        settle: Callable[[ParkOutcome], None] = lambda _: None,
    ) -> None:
        self.over = False
        self.progress: Progress | None = None
        self._pid, self._held, self._settle = pid, held, settle
        self._outcome: ParkOutcome | MonitorError | None = None
        self._changed = threading.Condition()
        self._waiting = 1
        self._off = False
        threading.Thread(target=self._work, name="tfgpu_magic-unpark", daemon=True).start()

    def join(self) -> bool:
        """Wait for it, too, if it can still be waited for; whoever joins has to `leave`. It begins with one."""
        with self._changed:
            if self.over or self._off:
                return False
            self._waiting += 1
            return True

    def leave(self) -> None:
        """Wait for it no longer."""
        with self._changed:
            self._waiting -= 1
            self._off = self._off or not self._waiting

    def call_off(self) -> None:
        """Have it end for all who wait, unless it can no longer be called off."""
        with self._changed:
            self._off = True

    def outcome(self, seconds: float | None, show: Callable[[Progress], None] = lambda _: None) -> ParkOutcome | None:
        """Wait for what comes of it; return None where it takes longer.

        Args:
            seconds: how long to wait; None is as long as it takes.
            show: takes each progress.

        Raises:
            MonitorError: the parker cannot be asked.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.over, _POLL)
                outcome, progress = self._outcome, self.progress
            if isinstance(outcome, MonitorError):
                raise outcome
            if outcome is not None:
                return outcome
            if end is not None and time.monotonic() > end:
                return None
            if progress is not None:
                show(progress)

    def _work(self) -> None:
        try:
            done = client.unpark(pid=self._pid, held=self._held, tell=self._tell, wanted=self._wanted)
            self._settle(done)
            outcome: ParkOutcome | MonitorError = done
        except MonitorError as error:
            outcome = error
        except Exception as error:  # those who wait must hear of it
            why = str(error) or type(error).__name__
            outcome = MonitorError(f"The process that parks others cannot be asked: {why}")
        with self._changed:
            self._outcome, self.over = outcome, True
            self._changed.notify_all()

    def _tell(self, progress: Progress) -> None:
        self.progress = progress

    def _wanted(self) -> bool:
        return not self._off
