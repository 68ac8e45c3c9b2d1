"""The live table in a notebook: an anywidget that draws what one thread of this kernel sees, from second to second."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import anywidget
from traitlets import Bool, Dict, Unicode, default

from tfgpu_magic.config import account
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.viewing import Viewing
from tfgpu_magic.views import html, message, text

if TYPE_CHECKING:
    from tfgpu_magic.monitor.rows import Table

EVERY = 1.0
"""Seconds between two states."""
PAST_EVERY = 60.0
"""Seconds after which the history is sent again, for pages that are opened or loaded anew."""
PATIENCE = 3.0
"""Seconds that a cell waits for a look of somebody else, which takes milliseconds; to read /proc can hang."""
POINTS = 120
"""How many points of the last 10 minutes are sent: what is saved with a notebook has to stay small."""


_HANGS = "This machine's processes cannot be read at the moment."
_BROKEN = "The table cannot be drawn: something is wrong in tfgpu_magic. `%tf_gpu status` may say what."


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is to draw.

    Attributes:
        state: as `views.message.state` writes it.
        rows: the same as rows, for front ends without widgets; None where nothing could be seen.
        past: the history, as `views.message.past` writes it; None leaves it as it is.
    """

    state: message.State
    rows: Table | None = None
    past: dict[str, Any] | None = None


class MemoryTable(anywidget.AnyWidget):
    """A live table of the GPUs' memory, by notebook; what `%tf_gpu top` shows.

    It goes on while a cell runs, and until it is closed or the kernel ends. Saved with the notebook, the last state
    is drawn without a kernel too. In Colab, which draws no updates from behind, it has a Refresh button.

    Attributes:
        state: what is drawn, as `views.message.state` writes it; read it, and leave it alone.
        history: what was used in the last ten minutes when it was last sent, as `views.message.past` writes it.
        live: whether it draws by itself.

    Raises:
        MonitorError: the widget's JavaScript is missing from this installation.

    Example:
        >>> import tfgpu_magic
        >>> tfgpu_magic.MemoryTable()  # doctest: +SKIP
    """

    state = Dict().tag(sync=True)
    history = Dict().tag(sync=True)
    live = Bool(True).tag(sync=True)
    _esm = Unicode().tag(sync=True)
    _css = Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        seen = _TICKER.look(past=True)
        self._rows = seen.rows
        live = "google.colab" not in sys.modules
        super().__init__(state=seen.state, history=seen.past or {}, live=live, **traits)
        self.on_msg(self._asked)
        if live:
            _TICKER.add(self)

    def refresh(self) -> None:
        """Look at the GPUs now."""
        self.show(_TICKER.look(past=True))

    def close(self) -> None:
        """Take the table away, everywhere it is shown."""
        if self.comm is not None:  # once only: the garbage collector closes it too, in whatever thread it runs
            _TICKER.discard(self)
        super().close()

    def show(self, seen: Seen) -> None:
        """Draw what was seen."""
        self._rows, self.state = seen.rows, seen.state
        if seen.past is not None:
            self.history = seen.past

    def _asked(self, _: object, content: Any, __: object) -> None:
        if isinstance(content, dict) and content.get("type") == "refresh":
            self.refresh()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        if bundle and self._rows is not None:
            bundle[0].update({"text/plain": text.render(self._rows), "text/html": html.render(self._rows)})
        return bundle

    @default("_esm")
    def _javascript(self) -> str:
        return _built("widget.js")

    @default("_css")
    def _style(self) -> str:
        return _built("widget.css")


class _Ticker:
    """Looks once a second for all tables of this process, while there are any, on a thread of its own."""

    def __init__(self) -> None:
        self._tables: weakref.WeakSet[MemoryTable] = weakref.WeakSet()
        self._lock = threading.Lock()  # of the tables and the thread; never held while anything is looked at
        self._looking = threading.Lock()  # a Viewing is for one thread at a time
        self._viewing: Viewing | None = None
        self._thread: threading.Thread | None = None

    def add(self, table: MemoryTable) -> None:
        """Keep a table up to date."""
        with self._lock:
            self._tables.add(table)
            if self._thread is None or not self._thread.is_alive():  # as in a child that was forked
                self._thread = threading.Thread(target=self._run, name="tfgpu_magic-top", daemon=True)
                self._thread.start()

    def discard(self, table: MemoryTable) -> None:
        """Leave a table as it is."""
        with self._lock:
            self._tables.discard(table)

    def look(self, *, past: bool) -> Seen:
        """Look now, at the history too if that is wanted. Nothing raises, and a look that hangs holds up no other."""
        if not self._looking.acquire(timeout=PATIENCE):
            return Seen(message.trouble(_HANGS))
        try:
            return self._see(past=past)
        except MonitorError as error:  # the board's directory may be put right meanwhile
            return Seen(message.trouble(str(error)))
        except Exception:  # whatever it is: it would end the thread, and be printed into a cell
            logging.getLogger(__name__).debug("a look failed", exc_info=True)
            return Seen(message.trouble(_BROKEN))
        finally:
            self._looking.release()

    def _see(self, *, past: bool) -> Seen:
        if self._viewing is None:
            self._viewing = Viewing(kernel=os.getpid(), report=account.report)
            with contextlib.suppress(MonitorError):  # which is said at once, by the next line
                self._viewing.live.wait(1.5)  # a table that opens with figures is worth the wait
        sight = self._viewing.see()
        points = message.past(self._viewing.history(), seconds=600, most=POINTS) if past else None
        return Seen(message.state(sight), sight.table, points)

    def _run(self) -> None:
        past_at = time.monotonic()
        while tables := self._wait():
            past = time.monotonic() - past_at >= PAST_EVERY
            past_at = time.monotonic() if past else past_at
            seen = self.look(past=past)
            for table in tables:
                with contextlib.suppress(Exception):  # it may be closed meanwhile, or the kernel end
                    table.show(seen)
        with self._looking:
            if self._viewing is not None:
                self._viewing.close()
                self._viewing = None

    def _wait(self) -> list[MemoryTable]:
        """Wait for the next look, and return the tables that it is for; none ends the thread."""
        time.sleep(EVERY)
        with self._lock:
            tables = list(self._tables)
            if not tables:
                self._thread = None
        return tables


_TICKER = _Ticker()
_shown: MemoryTable | None = None


def shown() -> MemoryTable:
    """Return the table that this kernel shows already, or make one: a cell that is run again needs no second one."""
    global _shown
    if _shown is None or _shown.comm is None:  # closed
        _shown = MemoryTable()
    else:
        _shown.refresh()
    return _shown


def _built(name: str) -> str:
    try:
        return resources.files("tfgpu_magic.views").joinpath("static").joinpath(name).read_text(encoding="utf-8")
    except OSError as error:
        raise MonitorError(
            f"The live table is not built here: {name} is missing. In a clone of the repository scripts/demo builds "
            "it; else install tfgpu-magic anew."
        ) from error
