"""Decides when `publisher` reports on this kernel: every second while it works, and at the end of each cell.

It runs in a thread of its own, so no cell waits for it. While no cell runs and TensorFlow has not started, it sleeps.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfgpu_magic.publisher import Publisher

EVERY = 1.0
"""Seconds between two reports while something may change."""
SHARE = 0.01
"""The share of the time that reports may take."""

AWAKE_EVERY = 30.0
"""Seconds between two signs of activity of a kernel with a running job: its server may end kernels that are idle."""

PATIENCE = 1.0
"""Seconds that the end of the process waits for a report that is being made."""

_GATHER = 0.1  # seconds: cells that run one after the other make one report


class Reporter:
    """The thread that reports on the kernel of a shell.

    Args:
        shell: IPython's shell, whose cells are watched.
        running: whether a cell is running now.
    """

    def __init__(self, shell: Any, *, running: bool = False) -> None:
        self._shell = shell
        self._busy = running
        self._jobs = False
        self._awake_at = float("-inf")
        self._active = time.time()
        self._ready = False
        self._wake, self._ended = threading.Event(), threading.Event()
        self._waiting: list[threading.Event] = []
        self._thread = threading.Thread(target=self._run, name="tfgpu_magic-reporter", daemon=True)

    def start(self) -> None:
        """Watch the cells, and report."""
        self._shell.events.register("pre_run_cell", self._before)
        self._shell.events.register("post_run_cell", self._after)
        atexit.register(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Stop reporting, and remove the last report. May be called twice."""
        if self._ended.is_set():
            return
        self._ended.set()
        atexit.unregister(self.stop)
        self._shell.events.unregister("pre_run_cell", self._before)
        self._shell.events.unregister("post_run_cell", self._after)
        self._wake.set()
        self._thread.join(PATIENCE)

    def announce(self) -> None:
        """Report at once, and return when other processes can read the report, or when it takes too long."""
        published = threading.Event()
        self._waiting.append(published)
        self._wake.set()
        published.wait(PATIENCE)

    def note_idle(self) -> None:
        """Note that no cell runs: IPython sends no event at the end of a silent one."""
        self._turn(busy=False)

    def _before(self, _: Any) -> None:
        self._turn(busy=True)

    def _after(self, _: Any) -> None:
        self._turn(busy=False)

    def _turn(self, *, busy: bool) -> None:
        self._busy, self._active = busy, time.time()
        self._wake.set()

    def _run(self) -> None:
        if not self._due(EVERY):
            return
        # Imported here: loading the extension, and a first line that follows at once, need not wait for it.
        from tfgpu_magic.publisher import AT_LEAST_EVERY, Publisher, notebook_of, parks

        publisher = Publisher(partial(notebook_of, self._shell), partial(parks, self._shell))
        while True:
            begin = time.perf_counter()
            self._look_for_jobs()
            waiting, self._waiting = self._waiting, []
            self._publish(publisher)
            for published in waiting:
                published.set()
            pause = min(max(EVERY, (time.perf_counter() - begin) / SHARE), AT_LEAST_EVERY)
            if not self._due(pause):
                break
        publisher.close()

    def _publish(self, publisher: Publisher) -> None:
        # Whether it is busy is noted before the figures are read: a cell may end meanwhile.
        publisher.publish(busy=self._busy or self._jobs, active=self._active)
        self._ready = publisher.ready

    def _due(self, pause: float) -> bool:
        """Wait until a report is due; return False when none is due any more."""
        if self._wake.wait(self._until_next(pause)):
            self._ended.wait(_GATHER)
            self._wake.clear()
        return not self._ended.is_set()

    def _until_next(self, pause: float) -> float | None:
        """Return the seconds until the next report or sign of activity is due; None where there is nothing to do."""
        if self._jobs and not self._busy:
            return min(pause, max(0.0, self._awake_at + AWAKE_EVERY - time.monotonic()))
        return pause if self._busy or self._ready else None

    def _look_for_jobs(self) -> None:
        """Note whether background cells and calls run: they would end with their kernel, so it is not idle."""
        listed: Any = sys.modules.get("tfgpu_magic.isolate.job_list")
        running = bool(getattr(listed, "running", tuple)())  # a cell may be importing it, and has run half of it
        if self._jobs and not running:
            self._active = time.time()
        self._jobs = running
        if running and not self._busy and time.monotonic() - self._awake_at >= AWAKE_EVERY:
            self._awake_at = time.monotonic()
            with contextlib.suppress(Exception):  # a kernel that is ending
                _say_something(self._shell.kernel)


def _say_something(kernel: Any) -> None:
    """Send a message that a server counts as activity and no front end shows: one for a comm that does not exist."""
    content = {"comm_id": "tfgpu_magic", "data": {}}
    kernel.session.send(kernel.iopub_socket, "comm_msg", content, ident=b"comm-tfgpu_magic")
