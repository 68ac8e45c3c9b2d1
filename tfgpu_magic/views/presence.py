"""Whether a page draws a live table, as far as its kernel can know: pure but for the clock that it is given."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE = 30.0
"""Seconds that a page counts as there after it was heard; the widget is heard each eight while it is drawn."""
STATE_EVERY = 1.0
"""Seconds between two states for a page that is there."""
DOUBT = 60.0
"""Seconds of silence in a running cell after which states come less often: half as often each time it doubles."""


class Presence:
    """What is known of the pages that draw a table, which go without a word.

    A page says now and then that it draws. Most front ends' messages wait while a cell runs, so silence means nothing
    then; but the page may be gone all the same. So states become rarer, and a cell of eight hours makes six hundred of
    them. Where a page was heard while the cell ran, which a subshell makes possible, silence means that it has gone.

    Args:
        running: whether a cell is running now.
        clock: seconds, which only go on.
    """

    def __init__(self, *, running: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard = self._ended = clock()
        self._running = running
        self._heard_in_cell = False  # whether it was last heard while a cell ran

    def hear(self) -> None:
        """Take a word from a page that draws."""
        self._heard, self._heard_in_cell = self._clock(), self._running

    def begin(self) -> None:
        """Note that a cell runs."""
        self._running = True

    def end(self) -> None:
        """Note that no cell runs any more: what pages have said meanwhile comes now."""
        self._running, self._ended = False, self._clock()

    def pause(self) -> float | None:
        """Seconds from one state to the next as things stand; None where nobody is there to draw it."""
        now = self._clock()
        silence = now - self._heard
        if self._running and not self._heard_in_cell:
            return STATE_EVERY * 2.0 ** max(0, math.floor(math.log2(max(silence, DOUBT) / DOUBT)))
        last = self._heard if self._running else max(self._heard, self._ended)
        return STATE_EVERY if now - last < LEASE else None
