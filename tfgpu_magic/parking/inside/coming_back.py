"""An attempt of this process to come back, for which several may wait: cells, messages, a page's button."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.parking.gpu_state import Asker
from tfgpu_magic.parking.messages import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgpu_magic.parking.messages import ParkOutcome

_POLL = 0.2  # seconds between two looks at how it gets on


class ComingBack:
    """The attempt, on a thread of its own. It is called off when nobody waits for it any more.

    Args:
        unpark: makes it.

    Attributes:
        over: whether it has ended.
        progress: how it is getting on.
    """

    def __init__(self, unpark: Callable[[Asker], ParkOutcome]) -> None:
        self.over = False
        self.progress: Progress | None = None
        self._unpark = unpark
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
            MonitorError: it has failed.
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
            show(progress or Progress(step="begins"))

    def _work(self) -> None:
        outcome: ParkOutcome | MonitorError
        try:
            outcome = self._unpark(Asker(self._tell, lambda: not self._off))
        except Exception as error:  # those who wait must hear of it
            outcome = MonitorError(f"The GPU state could not be brought back ({str(error) or type(error).__name__}).")
        with self._changed:
            self._outcome, self.over = outcome, True
            self._changed.notify_all()

    def _tell(self, progress: Progress) -> None:
        self.progress = progress
