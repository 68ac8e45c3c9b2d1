"""One attempt to bring this process's GPU state back, made on a thread of its own, for which any others wait."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.parking import client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgpu_magic.parking.messages import Outcome, Progress
    from tfgpu_magic.parking.record import Held

_POLL = 0.2  # seconds between two looks at the progress


class ComingBack:
    """The attempt. It is called off when nobody waits for it any more.

    Args:
        held: what the process held when it was parked.
        settle: is called with what has come of it, before anybody is told.

    Attributes:
        over: whether it has ended.
        progress: how it is getting on.
    """

    def __init__(self, held: tuple[Held, ...], settle: Callable[[Outcome], None]) -> None:
        self.over = False
        self.progress: Progress | None = None
        self._held, self._settle = held, settle
        self._outcome: Outcome | MonitorError | None = None
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

    def outcome(self, seconds: float | None, show: Callable[[Progress], None]) -> Outcome | None:
        """Wait for what comes of it; return None where it takes longer.

        Args:
            seconds: how long to wait; None is as long as it takes.
            show: takes each progress.

        Raises:
            MonitorError: the helper cannot be asked.
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
            done = client.unpark(held=self._held, tell=self._tell, wanted=self._wanted)
            self._settle(done)
            outcome: Outcome | MonitorError = done
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


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and Jupyter's interrupt raise `KeyboardInterrupt` here, whatever else is to be done with them now."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


@contextlib.contextmanager
def uninterrupted() -> Iterator[threading.Event]:
    """Raise no `KeyboardInterrupt` here, and give what is set instead: nothing is to be left half done."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
