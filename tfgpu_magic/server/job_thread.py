"""A thread for jobs that would block the event loop; it does them one by one, and the server can end without it."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class JobThread:
    """A thread that starts with its first job.

    It is a daemon, unlike those of `concurrent.futures`: to read /proc can hang as long as a process hangs in a
    driver, and a server must be able to end meanwhile.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def do(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run a job on the thread, and return a future of its result. Call this on an event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            settle: Callable[..., None]
            outcome: Any
            try:
                settle, outcome = future.set_result, job()
            except Exception as error:  # whatever it is, the caller must get it
                settle, outcome = future.set_exception, error
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_set_outcome, future, settle, outcome)

        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tfgpu_magic-server", daemon=True)
            self._thread.start()
        self._jobs.put(work)
        return future

    def close(self, last: Callable[[], object]) -> None:
        """End the thread after its jobs and one last job, without waiting for them."""
        if self._thread is None:
            last()
            return
        self._jobs.put(last)
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _set_outcome(future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: object) -> None:
    if not future.done():  # its caller may have cancelled it
        settle(outcome)
