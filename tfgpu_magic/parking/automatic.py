"""`park --auto`: parks this process by itself when no cell has run for a while, always or only when room is wanted.

A thread waits for that time. The kernel's own loop begins it, so that no cell of its shell is under way, and goes on
meanwhile: whatever comes calls it off. It shows nothing, for there is no cell below which to show it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Any

from tfgpu_magic.claims.ledger import LEDGER
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.answer import Document
from tfgpu_magic.ground.message import Message, msg, paragraph
from tfgpu_magic.ground.process_kind import UseWatch
from tfgpu_magic.ground.units import parse_seconds
from tfgpu_magic.parking.kernel.process import Attempt, GatedProcess, uninterrupted
from tfgpu_magic.policy.word import ParsedLine

AUTO, WHEN_NEEDED = "--auto", "--when-needed"
CHECK_EVERY = 1.0  # seconds between two looks whether room is wanted
AGAIN_AFTER = 15.0  # seconds until what could not be parked is tried again; each time twice as long
LONGEST_PAUSE = 300.0  # the most that this becomes, until a cell runs again

UNKNOWN = msg("`{text}` is not understood.")
_OFF = "off"
_log = logging.getLogger(__name__)


class Automatic(UseWatch):
    """The parking of one process by itself.

    Args:
        shell: IPython's shell.
        process: this process, with its gate.
        after: seconds without a cell, or a message to a widget, after which it is parked.
        when_needed: whether it is parked only when others want room on its GPUs then.
    """

    def __init__(self, shell: Any, process: GatedProcess, after: float, *, when_needed: bool) -> None:
        super().__init__(shell, running=process_kind.in_cell())
        self._process, self._after_seconds, self._when_needed = process, after, when_needed
        self._used_at, self._pause = time.monotonic(), AGAIN_AFTER
        self._wake, self._ended = threading.Event(), False

    def start(self) -> None:
        """Watch the cells, and park it when it is time."""
        super().start()
        threading.Thread(target=self._run, name="tfgpu_magic-park-auto", daemon=True).start()

    def stop(self) -> None:
        """Park it no more."""
        super().stop()
        self._ended = True
        self._wake.set()

    def _note_use(self) -> None:
        self._used_at = time.monotonic()
        if self._pause > AGAIN_AFTER:
            self._pause = AGAIN_AFTER
            self._wake.set()  # a long pause ends

    _cells_changed = _note_use

    def _seconds_left(self) -> float:
        """Return the seconds for which it has to be idle yet."""
        now = time.monotonic()
        used_at = now if self._running or self._process.parked else max(self._used_at, self._process.back_at)
        return used_at + self._after_seconds - now

    def _run(self) -> None:
        wait = self._after_seconds
        while not self._ended:
            if self._wake.wait(wait):
                self._wake.clear()
            wait = self._seconds_left()
            if wait <= 0:
                wait = self._try_to_park()

    def _try_to_park(self) -> float:
        """Park it, if anything of it is on a GPU and wanted there; return the seconds until the next look."""
        gpus = set(cuda.gpus_in_use())
        if self._when_needed and not gpus & LEDGER.wanted_by_others():
            return CHECK_EVERY
        if gpus:
            self._park()
        if self._process.parked:
            return self._after_seconds
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return pause

    def _park(self) -> None:
        """Begin on the thread that runs its cells, if that has a loop, and wait until it is parked."""
        begun = futures.Future[tuple[Sequence[Message], Attempt | None]]()

        def begin() -> None:
            try:
                with uninterrupted():  # the loop may have had a cell to run before
                    due = not self._ended and self._seconds_left() <= 0
                    begun.set_result(self._process.begin_to_park() if due else ((), None))
            except BaseException as error:
                begun.set_exception(error)
                raise

        if hasattr(self._shell, "kernel"):
            self._shell.kernel.io_loop.add_callback(begin)
        else:
            begin()
        against, leaves = begun.result()
        trouble = leaves.wait() if leaves else None
        if against or leaves:
            _log.debug("parked by itself: %s", paragraph([*against, trouble]) if against or trouble else "done")


_current: Automatic | None = None


def answer(line: ParsedLine, shell: Any, process: GatedProcess) -> Document:
    """Make this process park itself from now on, or no more, as a line says.

    Raises:
        PolicyError: it is no such line.
    """
    global _current
    flags = line.flags
    off = flags.get(AUTO) == _OFF
    if line.values or not {AUTO} <= flags.keys() <= {AUTO, WHEN_NEEDED} or (off and WHEN_NEEDED in flags):
        raise line.word.error(UNKNOWN(text=line.text))
    after = None if off else parse_seconds(flags[AUTO])
    magics = process_kind.magics(shell)  # which stop what watches cells when they go
    if _current is not None:
        _current.stop()
        magics.watches = tuple(one for one in magics.watches if one is not _current)
        _current = None
    if after is None:
        return Document(msg("This {here} is not parked by itself any more.", here=process_kind.noun()))
    _current = Automatic(shell, process, after, when_needed=WHEN_NEEDED in flags)
    _current.start()
    magics.watches = (*magics.watches, _current)
    when = " and another process of yours finds no room on its GPUs" if WHEN_NEEDED in flags else ""
    by_itself = "This {here} is parked by itself when no cell has run for {time}{when}."
    return Document(msg(by_itself, here=process_kind.noun(), time=flags[AUTO], when=when))
