"""Parks this process by itself when it was not used for a while, always or only when another one waits for room.

It has a thread that looks at the clock. The kernel's own loop does the parking, so that no cell is under way.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.host import UseWatch, in_cell
from tfgpu_magic.leases import lease_file
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.parking.inside import notebook

LOOK_EVERY = 1.0  # seconds between two looks at the clock, and at who waits
AGAIN_AFTER = 15.0  # seconds until what could not be parked is tried again; each time twice as long
LONGEST_PAUSE = 300.0  # the most that this becomes, until a cell runs again
PARK_TIMEOUT = 600.0  # seconds after which a parking that the loop was given, and has not begun, is given up


class Automatic(UseWatch):
    """The parking of one process by itself after so many idle seconds, or only when another one waits for room then."""

    def __init__(self, shell: Any, after: float, *, when_needed: bool) -> None:
        super().__init__(shell, running=in_cell())  # the cell that sets it up
        self._idle_for, self._when_needed = after, when_needed
        self._notebook = notebook.of(shell)
        self._idle_since, self._not_before = time.monotonic(), float("-inf")
        self._pause = AGAIN_AFTER
        self._ended = threading.Event()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        super().stop()

    def _turned(self) -> None:
        self._idle_since, self._pause = time.monotonic(), AGAIN_AFTER

    def _used(self) -> None:
        self._idle_since = time.monotonic()

    def run(self) -> None:
        """Look until it is stopped."""
        while not self._ended.wait(LOOK_EVERY):
            with contextlib.suppress(MonitorError, OSError):
                if self._due() and not self._have_parked():
                    self._not_before = time.monotonic() + self._pause
                    self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _due(self) -> bool:
        now = time.monotonic()
        idle = not self._running and now - max(self._idle_since, self._notebook.active) >= self._idle_for
        if not idle or self._notebook.parked or now < self._not_before:
            return False
        ours = set(cuda.pools())
        if not (ours and self._when_needed):
            return bool(ours)
        with BoardDirectory() as place:
            return bool(ours & lease_file.requested(place))

    def _have_parked(self) -> bool:
        """Park it, on the thread that runs its cells where it has a loop; tell whether it is parked."""
        done = threading.Event()

        def park() -> None:
            try:
                if not self._ended.is_set() and self._due():  # the loop may have been given it long ago
                    outcome = self._notebook.park(unasked=True)
                    logging.getLogger(__name__).debug("parked by itself: %s", outcome.refusals or "done")
            finally:
                done.set()

        if hasattr(self._shell, "kernel"):
            self._shell.kernel.io_loop.add_callback(park)
            done.wait(PARK_TIMEOUT)
        else:
            park()
        return self._notebook.parked


def start(shell: Any, after: float, *, when_needed: bool = False) -> Automatic:
    """Have a process parked by itself from now on."""
    made = Automatic(shell, after, when_needed=when_needed)
    made.start()
    notebook.of(shell).arrange_end()
    threading.Thread(target=made.run, name="tfgpu_magic-parking", daemon=True).start()
    return made
