"""Shows below a cell how a parking or a return gets on: in a notebook in one place, in a terminal in lines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from IPython.display import display

from tfgpu_magic.model.answer import Document
from tfgpu_magic.monitor.table import fetch
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking.messages import Progress

SOON = 0.7  # seconds that need no explanation
LONG = 10.0  # seconds after which it is said how to go on without the GPU
EVERY = 1.0  # seconds between two sentences in a terminal, at the least


class Shown:
    """What is shown below one cell; if this process comes `back`, it is said after a while how to go on without."""

    def __init__(self, shell: Any, *, back: bool = False) -> None:
        self._in_kernel, self._back = hasattr(shell, "kernel"), back
        self._begun = self._said_at = time.monotonic()
        self._text = ""
        self._place: Any = None
        self._names: dict[int, str] = {}

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._begun

    def __call__(self, progress: Progress) -> None:
        """Show how it gets on, if it takes long enough."""
        now = time.monotonic()
        if now - self._begun < SOON or (self._text and not self._in_kernel and now - self._said_at < EVERY):
            return
        hint = f" {parking.WITHOUT_SOON}" if self._back and now - self._begun >= LONG else ""
        self.say(parking.progress(progress, self._owners(progress)) + hint)

    def end(self, text: str) -> None:
        """Show what has come of it; a return that nobody had to wait for needs no words."""
        if self._text:
            self.say(text)

    def say(self, text: str) -> None:
        """Show a text in any case."""
        if not text or text == self._text:
            return
        self._text, self._said_at = text, time.monotonic()
        if not self._in_kernel:
            print(text, flush=True)
        elif self._place is None:
            self._place = display(Document(text), display_id=True)  # type: ignore[no-untyped-call]  # IPython's
        else:
            self._place.update(Document(text))

    def _owners(self, progress: Progress) -> Mapping[int, str]:
        pids = {pid for room in progress.rooms for pid, _ in room.holders} | set(progress.ahead)
        if new := pids - self._names.keys():
            found = fetch.owners(new)
            self._names |= {pid: found[pid].text if pid in found else f"pid {pid}" for pid in new}
        return self._names
