"""Interrupts that raise nothing amid our own work: as an event among descriptors, or put off to a block's end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class InterruptEvent:
    """An event that any thread or signal handler sets, and that one thread sees as a readable descriptor."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt the holder and set it
        self._descriptor: int | None = None
        self._early = 0

    def set(self) -> None:
        """Set it; a wait that begins later sees it then."""
        with self._lock:
            if self._descriptor is None:
                self._early += 1
            else:
                os.eventfd_write(self._descriptor, 1)

    def taken(self) -> int:
        """Return how often it was set since the last invocation."""
        with contextlib.suppress(BlockingIOError):
            return os.eventfd_read(self.fileno())
        return 0

    def fileno(self) -> int:
        """Return the descriptor that a selector waits for."""
        assert self._descriptor is not None  # noqa: S101  # it is waited for
        return self._descriptor

    def __enter__(self) -> None:
        with self._lock:
            self._descriptor = os.eventfd(self._early, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            descriptor, self._descriptor = self.fileno(), None
            os.close(descriptor)


@contextlib.contextmanager
def handling_interrupts(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Set another handler of Ctrl-C for the block, if Ctrl-C comes to this thread and is not ignored."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def deferring_interrupts(event: InterruptEvent | None = None) -> Iterator[None]:
    """Run the handler of Ctrl-C after the block, if Ctrl-C came within it: nothing is left half done.

    Args:
        event: what Ctrl-C sets at once; if it has been taken when the block ends, the handler does not run.
    """
    came: list[int] = []

    def handle(number: int, _: object) -> None:
        came.append(number)
        if event is not None:
            event.set()

    try:
        with handling_interrupts(handle):
            yield
    finally:
        if came and (event is None or event.taken()):
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def noting_interrupt() -> Iterator[list[int]]:
    """Yield a list to which the first Ctrl-C in the block is only added: there is an answer to be kept."""
    came: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if came:
            signal.default_int_handler(number, frame)
        came.append(number)

    with handling_interrupts(handle):
        yield came
