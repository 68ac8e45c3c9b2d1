"""Gives GPU memory that TensorFlow does not use back to the driver once no cell has run for a while.

It does so only where `growth --release` is in force. It looks at nothing that is not imported yet: what is not
imported holds no memory, and loading the extension is to be quick.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

PATIENCE = 1.0
"""Seconds that a cell which begins amid a giving back waits for its end; it takes milliseconds."""


class IdleRelease:
    """The thread that waits beside a shell until no cell has run for so long.

    There is none before the first cell that ends under `growth --release`, and it sleeps until its time is over. It
    sends nothing and makes no report, so for its server the kernel is as idle as it was.

    Args:
        shell: IPython's shell, whose cells are watched.
        after: returns the seconds to wait; 0 is for ever.
    """

    def __init__(self, shell: Any, after: Callable[[], float]) -> None:
        self._shell = shell
        self._seconds = after
        self._thread: threading.Thread | None = None
        self._over, self._begun, self._done = threading.Event(), threading.Event(), threading.Event()
        self._done.set()
        self._stopped = False
        self._running = 0  # cells may run cells

    def start(self) -> None:
        """Watch the cells."""
        self._shell.events.register("pre_run_cell", self._before)
        self._shell.events.register("post_run_cell", self._after)

    def stop(self) -> None:
        """Watch no more; what is being given back goes on."""
        self._shell.events.unregister("pre_run_cell", self._before)
        self._shell.events.unregister("post_run_cell", self._after)
        self._stopped = True
        self._begun.set()
        self._over.set()

    def _before(self, _: Any) -> None:
        self._running += 1
        self._begun.set()
        self._done.wait(PATIENCE)

    def _after(self, _: Any) -> None:
        self._running = max(0, self._running - 1)  # the cell that loads the extension has begun before it
        if self._running:
            return
        self._begun.clear()
        if self._seconds() and _gives_back():
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tfgpu_magic-idle-release", daemon=True)
                self._thread.start()
            self._over.set()

    def _run(self) -> None:
        while not self._stopped:
            self._over.wait()
            self._over.clear()
            if self._begun.wait(self._seconds() or None):
                continue
            self._done.clear()
            try:
                if not self._begun.is_set():  # a cell that begins from here on waits
                    _give_back()
            finally:
                self._done.set()


def _gives_back() -> bool:
    """Tell whether TensorFlow was set up to give memory back."""
    runtime: Any = sys.modules.get("tfgpu_magic.config.runtime")
    plan = getattr(getattr(runtime, "RUNTIME", None), "plan", None)
    return plan is not None and bool(plan.releases)


def _give_back() -> None:
    """Have CUDA's pools give back what nobody uses, where CUDA runs; where that fails, what fails next tells of it."""
    cuda: Any = sys.modules.get("tfgpu_magic.config.cuda")
    with contextlib.suppress(Exception):
        cuda.give_back()
