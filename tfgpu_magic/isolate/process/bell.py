"""A way to be interrupted that breaks nothing off: who waits hears it among all else, and does what is due."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


class Bell:
    """Rings from any thread, or a signal handler, and is heard by one that waits for descriptors."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may ring in the midst of it
        self._descriptor: int | None = None
        self._early = 0

    def ring(self) -> None:
        """Ring it; who listens later hears it then."""
        with self._lock:
            if self._descriptor is None:
                self._early += 1
            else:
                os.eventfd_write(self._descriptor, 1)

    def heard(self) -> int:
        """How often it rang since this was asked last."""
        with contextlib.suppress(BlockingIOError):
            return os.eventfd_read(self.fileno())
        return 0

    def fileno(self) -> int:
        """What a selector waits for."""
        assert self._descriptor is not None  # noqa: S101  # who listens has not left
        return self._descriptor

    def __enter__(self) -> None:
        with self._lock:
            self._descriptor = os.eventfd(self._early, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            descriptor, self._descriptor = self.fileno(), None
            os.close(descriptor)


@contextlib.contextmanager
def heard_by(bell: Bell) -> Iterator[None]:
    """Have Ctrl-C ring the bell, where it would raise KeyboardInterrupt amid our own work.

    What nobody has heard when this ends is handed to whom it would have gone.
    """
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    rung = False

    def ring(*_: object) -> None:
        nonlocal rung
        rung = True
        bell.ring()

    before = signal.signal(signal.SIGINT, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if rung and bell.heard():
            signal.raise_signal(signal.SIGINT)
