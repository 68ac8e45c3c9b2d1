"""The live table in a notebook: an anywidget that draws what one thread of this kernel reads every second."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import sys
import threading
import time
import traceback
import uuid
from dataclasses import replace
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

import anywidget
from IPython.core.getipython import get_ipython
from IPython.display import display
from traitlets import Bool, Dict, Float, Unicode, default

from tfgpu_magic.engine.status import shown
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.frameworks import self_report
from tfgpu_magic.ground.bounded import run_within
from tfgpu_magic.ground.process_kind import process_kind, quiet_comms
from tfgpu_magic.ground.rows import Table
from tfgpu_magic.tell import fetch, page_json
from tfgpu_magic.tell.fetch import Watcher, failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.events import EventManager

    Drawn = tuple[Table, page_json.Past | None]


LOOK_TIMEOUT = 3.0
"""Seconds that a cell waits for a snapshot, which takes milliseconds. But to read /proc can hang."""
SAVED_TIMEOUT = 1.0
"""Seconds that a cell waits for fresher figures to save, and as long for their owners, or it saves the drawn ones."""
COLLECTOR_GONE_AFTER = 5.0
"""Seconds without a look after which the collector may have ended, so that a look waits for a new one's reading."""
PRESENT_FOR = 30.0
"""Seconds that a page counts as present after a message. A widget sends one every eight while it is drawn."""
STATE_EVERY = 1.0
"""Seconds between two states for a page that is present."""
DOUBT = 60.0
"""Seconds without a message in a running cell after which states are sent half as often at each doubling."""
HISTORY_POINTS = 120
"""How many points of the last 10 minutes are sent: they are saved with the notebook, and must stay small."""
ANSWER_WITHIN = 1.0
"""Seconds of an idle kernel in which a front end that draws widgets has made the table's model, and sent that."""

NOT_LIVE = "This front end does not draw the live table. Run the cell again for new figures."

_HANGS = Table(error="This machine's processes cannot be read at the moment.")
_BROKEN = "The table cannot be drawn: something is wrong in tfgpu_magic. `%tf_gpu status` may say what."


class MemoryTable(anywidget.AnyWidget):
    """A live table of the GPUs' memory, by notebook. What `%tf_gpu top` shows.

    It is updated while cells run, as long as a page draws it: a table out of sight sends nothing, keeps no kernel
    awake, and is updated again when it is in sight. Saved with the notebook, the last state is drawn without a kernel
    too. In Colab, which draws no updates from another thread, it has a Refresh button. If a front end does not draw
    widgets, the cell shows the table as HTML and text instead.

    A kernel has one table, which any number of cells show: making it again returns the same one.

    Attributes:
        state: what is drawn, as `page_json.state` returns it; read-only.
        history: what was used in the ten minutes before a page began to draw, as `page_json.past` returns it.
        every: seconds from this state to the next.
        live: whether it is updated without a Refresh button.
        kernel: the kernel's id on its Jupyter Server, from which a page may draw the same; empty if it has none.

    Raises:
        MonitorError: the widget's JavaScript is missing from this installation.

    Example:
        >>> import tfgpu_magic
        >>> tfgpu_magic.MemoryTable()  # doctest: +SKIP
    """

    state = Dict().tag(sync=True)
    history = Dict().tag(sync=True)
    every = Float(STATE_EVERY).tag(sync=True)
    live = Bool(True).tag(sync=True)
    kernel = Unicode().tag(sync=True)
    _esm = Unicode().tag(sync=True)
    _css = Unicode().tag(sync=True)

    _one: MemoryTable | None = None

    def __new__(cls, **traits: Any) -> MemoryTable:
        """Return the kernel's table, or make it."""
        one = MemoryTable._one
        if one is None or one.comm is None:  # closed
            one = MemoryTable._one = super().__new__(cls, **traits)
        return one

    def __init__(self, **traits: Any) -> None:
        if self.comm is not None:
            for name, value in traits.items():
                setattr(self, name, value)
            self.refresh()
            return
        self._shell = get_ipython()
        self._showing = threading.Lock()  # the ticker's thread calls `show`, and the kernel's own
        self._pages = Pages(running=self._shell is not None)
        self._outputs = Outputs(self._repr_mimebundle_, partial(self._still, NOT_LIVE))
        self._rows, past = _TICKER.look()
        live = "google.colab" not in sys.modules
        super().__init__(state=page_json.state(self._rows), history=past or {}, live=live, **traits)
        quiet_comms.add(self.model_id)
        self.on_msg(self._heard)
        if live:
            for events, name, note in self._notes():
                events.register(name, note)
            _TICKER.go(self)

    @classmethod
    def number(cls) -> str | None:
        """Return the id of the kernel's table among its comms, or None if it has none."""
        return None if cls._one is None or cls._one.comm is None else str(cls._one.comm.comm_id)

    def refresh(self) -> None:
        """Look at the GPUs now."""
        self.show(*_TICKER.look())

    def close(self) -> None:
        """Remove the table wherever it is shown."""
        if self.comm is not None and self.live:  # only once: the garbage collector closes it too, in any thread
            for events, name, note in self._notes():
                with contextlib.suppress(ValueError):  # a shell that was reset has none
                    events.unregister(name, note)
        super().close()

    def show(self, table: Table, past: page_json.Past | None = None) -> None:
        """Draw a table, and the history, as `tell.page_json.past` returns it, unless that is None."""
        with self._showing, self.hold_sync():
            self._rows, self.state, self.every = table, dict(page_json.state(table)), self.pause() or STATE_EVERY
            if past is not None:
                self.history = dict(past)

    def pause(self) -> float | None:
        """Return the seconds from one state to the next, or None while no page draws them."""
        return None if self.comm is None else self._pages.pause()

    def _heard(self, _: object, content: Any, __: object) -> None:
        """Handle a page's message: `here`, `drawn`, or `refresh`, by which a new page asks for the history too."""
        kind = content.get("type") if isinstance(content, dict) else None
        if kind == "here":
            self._outputs.answer()
        if kind not in ("drawn", "refresh"):
            return
        away = self.pause() is None
        self._pages.hear()
        if away or kind == "refresh":
            self.refresh()
        if self.live:
            _TICKER.go(self)

    def _notes(self) -> tuple[tuple[EventManager, str, Callable[..., None]], ...]:
        """Return the callbacks for the begin and the end of a cell, with their events."""
        if self._shell is None:
            return ()
        events = self._shell.events
        return (events, "pre_run_cell", self._begins), (events, "post_run_cell", self._ends)

    def _begins(self, *_: object) -> None:
        self._outputs.begin()
        self._pages.begin()
        _TICKER.go(self)

    def _ends(self, *_: object) -> None:
        if any(frame.f_code.co_name == "run_cell_async" for frame, _ in traceback.walk_stack(None)):
            return  # a cell that another one has run, and that goes on
        self._outputs.end()
        self._pages.end()
        _TICKER.go(self)

    def _ipython_display_(self) -> None:
        self._outputs.show()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        if bundle:
            bundle[0].update(self._still())
        return bundle

    def _still(self, *notes: str) -> dict[str, str]:
        """Return the table as text and HTML, which are saved with the notebook and shown without a widget."""
        rows = self._rows  # they may be a second old
        fresh = rows if rows.error else fetch.table(self_report.report, timeout=SAVED_TIMEOUT)
        table = rows if fresh.error else fresh
        now = shown(replace(table, notes=(*table.notes, *notes)))
        return {"text/plain": repr(now), "text/html": now._repr_html_()}

    @default("kernel")
    def _kernel(self) -> str:
        app = sys.modules.get("ipykernel.kernelapp")
        started = app is not None and app.IPKernelApp.initialized()
        path = str(app.IPKernelApp.instance().abs_connection_file) if app is not None and started else ""
        named = re.search(r"kernel-([\w-]+)\.json$", path)
        return named[1] if named else ""

    @default("_esm")
    def _javascript(self) -> str:
        return _read_built("widget.js")

    @default("_css")
    def _style(self) -> str:
        return _read_built("widget.css")


class Outputs:
    """The outputs that show a table: with its widget, or as text and HTML if no front end draws widgets.

    A kernel is told of no front end, and one that takes messages of widgets may still lack what draws them, as VS Code
    does without its script source. So the widget's module sends `here` when its model is made, in sight or not. A busy
    kernel hears that at the end of its cell. If a second of an idle kernel brings no answer, the outputs lose their
    widget, and have it again if the answer comes later.

    Args:
        widget: returns the data and the metadata of an output with the widget.
        still: returns the data of one without.
    """

    def __init__(self, widget: Callable[[], Any], still: Callable[[], dict[str, str]]) -> None:
        self._widget, self._still = widget, still
        self._shown: list[str] = []  # their display ids, until there is an answer
        self._answered = self._without = False
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()  # the timer's thread changes outputs, and the kernel's own

    def show(self) -> None:
        """Show the table as an output of the current cell."""
        with self._lock:
            name = uuid.uuid4().hex
            self._shown += [] if self._answered else [name]
            self._draw(name)

    def answer(self) -> None:
        """Record that a front end draws the widget."""
        with self._lock:
            before, self._answered, self._without = self._without, True, False
            if before:
                self._draw(*self._shown, update=True)
            self._shown.clear()

    def begin(self) -> None:
        """Record that a cell runs, in which no answer may arrive."""
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Wait for an answer, from the end of a cell on."""
        self.begin()
        if self._shown and not self._without and process_kind() == "kernel":
            self._timer = threading.Timer(ANSWER_WITHIN, self._wait_no_longer)
            self._timer.daemon = True
            self._timer.start()

    def _wait_no_longer(self) -> None:
        with self._lock:
            if not self._answered:
                self._without = True
                self._draw(*self._shown, update=True)

    def _draw(self, *names: str, update: bool = False) -> None:
        data, metadata = (self._still(), {}) if self._without else self._widget()
        for name in names:
            display(data, metadata=metadata, raw=True, display_id=name, update=update)  # type: ignore[no-untyped-call]


class Pages:
    """What is known of the pages that draw a table, from their messages. They leave without one.

    A page sends now and then that it draws. Most front ends' messages wait while a cell runs, so silence means nothing
    then; but the page may be gone all the same. So states become rarer, and a cell of eight hours makes six hundred of
    them. If a message arrived while the cell ran, which a subshell makes possible, silence means that the page has
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
        """Return the seconds from one state to the next, or None if no page draws it."""
        now = self._clock()
        silence = now - self._heard
        if self._running and not self._heard_in_cell:
            return STATE_EVERY * 2.0 ** max(0, math.floor(math.log2(max(silence, DOUBT) / DOUBT)))
        last = self._heard if self._running else max(self._heard, self._ended)
        return STATE_EVERY if now - last < PRESENT_FOR else None


class _Ticker:
    """A thread that looks for the kernel's table as long as a page draws it, and ends with that."""

    def __init__(self) -> None:
        self._table: MemoryTable | None = None
        self._lock = threading.Lock()  # of the table and the thread; never held during a look
        self._looking = threading.Lock()  # a Watcher is not thread-safe
        self._looked_at = float("-inf")
        self._watcher: Watcher | None = None
        self._thread: threading.Thread | None = None

    def go(self, table: MemoryTable) -> None:
        """Update a table from now on, while a page draws it."""
        with self._lock:
            self._table = table
            if self._thread is None or not self._thread.is_alive():  # as in a child that was forked
                self._thread = threading.Thread(target=self._run, name="tfgpu_magic-top", daemon=True)
                self._thread.start()

    def look(self) -> Drawn:
        """Look now, at the history too, from a cell: stop waiting for a look that hangs. Raise nothing."""
        return run_within(LOOK_TIMEOUT, partial(self._look, past=True)) or (_HANGS, None)

    def _look(self, *, past: bool) -> Drawn:
        """Look however long it takes, at the history too if that is wanted. A look that hangs blocks no other."""
        if not self._looking.acquire(timeout=LOOK_TIMEOUT):
            return _HANGS, None
        try:
            return self._see(past=past)
        except Exception as error:  # whatever it is: it would end the thread, and be printed into a cell
            logging.getLogger(__name__).debug("a look failed", exc_info=True)
            return failure(error, _BROKEN), None
        finally:
            self._looking.release()

    def _see(self, *, past: bool) -> Drawn:
        watcher = self._watcher = self._watcher or Watcher(kernel=os.getpid(), report=self_report.report)
        if time.monotonic() - self._looked_at > COLLECTOR_GONE_AFTER:
            with contextlib.suppress(MonitorError):  # which `see` raises at once
                watcher.watch.wait(1.5)  # a table that opens with figures is worth the wait
        self._looked_at = time.monotonic()
        table = watcher.read()
        return table, page_json.past(watcher.watch.history(), seconds=600, most=HISTORY_POINTS) if past else None

    def _run(self) -> None:
        while (table := self._next()) is not None:
            with contextlib.suppress(Exception):  # it may be closed meanwhile, or the kernel end
                table.show(*self._look(past=False))
        with self._looking:
            if self._watcher is not None:
                self._watcher.close()
                self._watcher = None

    def _next(self) -> MemoryTable | None:
        """Wait for the next snapshot, and return its table. None ends the thread."""
        begun = time.monotonic()
        while True:
            time.sleep(STATE_EVERY)
            with self._lock:
                table = self._table
                pause = None if table is None else table.pause()
                if pause is None:
                    self._table = self._thread = None
                    return None
            if time.monotonic() - begun >= pause - STATE_EVERY / 2:
                return table


_TICKER = _Ticker()


def _read_built(name: str) -> str:
    try:
        return resources.files("tfgpu_magic.notebook").joinpath("static").joinpath(name).read_text(encoding="utf-8")
    except OSError as error:
        raise MonitorError(
            f"The live table is not built here: {name} is missing. In a clone of the repository scripts/demo builds "
            "it; else install tfgpu-magic anew."
        ) from error
