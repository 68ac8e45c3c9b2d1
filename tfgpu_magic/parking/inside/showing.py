"""Shows below a cell how its GPU state gets on, away or back: in a notebook in one place, in a terminal in lines."""

from __future__ import annotations

import time
from typing import Any

from IPython.display import display

from tfgpu_magic.model.answer import Document

SOON = 0.7  # seconds that need no explanation
EVERY = 1.0  # seconds between two sentences in a terminal, at the least


class Shown:
    """What is shown below one cell."""

    def __init__(self, shell: Any) -> None:
        self._in_kernel = hasattr(shell, "kernel")
        self._begun = self._said_at = time.monotonic()
        self._text = ""
        self._place: Any = None

    def __call__(self, text: str) -> None:
        """Show a text in place of the one before, if the cell has waited long enough."""
        now = time.monotonic()
        if not text or text == self._text or now - self._begun < SOON:
            return
        if self._text and not self._in_kernel and now - self._said_at < EVERY:
            return
        self._said_at = now
        self.show_now(text)

    def show_now(self, text: str) -> None:
        """Show a text in place of the one before."""
        self._text, document = text, Document(*text.splitlines())
        if not self._in_kernel:
            print(text, flush=True)
        elif self._place is None:
            self._place = display(document, display_id=True)  # type: ignore[no-untyped-call]  # IPython's
        else:
            self._place.update(document)
