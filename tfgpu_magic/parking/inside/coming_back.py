"""An attempt of this process to come back, for which several may wait: cells, messages, a page's button."""

from __future__ import annotations

import threading
from concurrent import futures
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.parking.gpu_state import Asker
from tfgpu_magic.parking.messages import ParkOutcome, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

_POLL = 0.2  # seconds between two looks at how it gets on


class ComingBack:
    """The attempt, on a thread of its own. It is called off when nobody waits for it any more.

    Args:
        unpark: makes it.
    """

    def __init__(self, unpark: Callable[[Asker], ParkOutcome]) -> None:
        self._unpark = unpark
        self._progress = Progress(step="begins")
        self._outcome = futures.Future[ParkOutcome]()
        self._waiting = threading.RLock()  # a signal may end the process while it is held
        self._waiters = 1
        self._off = False
        threading.Thread(target=self._work, name="tfgpu_magic-unpark", daemon=True).start()

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._outcome.done()

    def join(self) -> bool:
        """Wait for it, too, if it can still be waited for; whoever joins has to `leave`. It begins with one."""
        with self._waiting:
            if self.over or self._off:
                return False
            self._waiters += 1
            return True

    def leave(self) -> None:
        """Wait for it no longer."""
        with self._waiting:
            self._waiters -= 1
            self._off = self._off or not self._waiters

    def call_off(self, seconds: float = 0.0) -> None:
        """Have it end for all who wait, unless it can no longer be called off.

        Args:
            seconds: how long to wait for its end.
        """
        with self._waiting:
            self._off = True
        futures.wait([self._outcome], seconds)

    def outcome(self, show: Callable[[Progress], None] = lambda _: None) -> ParkOutcome:
        """Wait for what comes of it.

        Args:
            show: takes each progress.

        Raises:
            MonitorError: it has failed.
        """
        while True:
            try:
                return self._outcome.result(_POLL)
            except futures.TimeoutError:
                show(self._progress)

    def _work(self) -> None:
        try:
            self._outcome.set_result(self._unpark(Asker(self._tell, lambda: not self._off)))
        except Exception as error:  # those who wait must hear of it
            said = f"The GPU state could not be brought back ({str(error) or type(error).__name__})."
            self._outcome.set_exception(MonitorError(said))

    def _tell(self, progress: Progress) -> None:
        self._progress = progress
