"""Estimates, from a page's messages to its kernel, whether the page draws a live table. Pure but for its clock."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE = 30.0
"""Seconds that a page counts as present after a message; a widget sends one every eight while it is drawn."""
STATE_EVERY = 1.0
"""Seconds between two states for a page that is present."""
DOUBT = 60.0
"""Seconds without a message in a running cell after which states are sent half as often at each doubling."""


class Presence:
    """What is known of the pages that draw a table, which leave without a message.

    A page sends now and then that it draws. Most front ends' messages wait while a cell runs, so silence means nothing
    then; but the page may be gone all the same. So states become rarer, and a cell of eight hours makes six hundred of
    them. Where a message arrived while the cell ran, which a subshell makes possible, silence means that the page has
    gone.

    Args:
        running: whether a cell is running now.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, *, running: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard = self._ended = clock()
        self._running = running
        self._heard_in_cell = False  # whether the last message came while a cell ran

    def hear(self) -> None:
        """Record a message from a page that draws."""
        self._heard, self._heard_in_cell = self._clock(), self._running

    def begin(self) -> None:
        """Record that a cell runs."""
        self._running = True

    def end(self) -> None:
        """Record that no cell runs any more: the pages' waiting messages arrive now."""
        self._running, self._ended = False, self._clock()

    def pause(self) -> float | None:
        """Return the seconds from one state to the next; None where no page draws it."""
        now = self._clock()
        silence = now - self._heard
        if self._running and not self._heard_in_cell:
            return STATE_EVERY * 2.0 ** max(0, math.floor(math.log2(max(silence, DOUBT) / DOUBT)))
        last = self._heard if self._running else max(self._heard, self._ended)
        return STATE_EVERY if now - last < LEASE else None
