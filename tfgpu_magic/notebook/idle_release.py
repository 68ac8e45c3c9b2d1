"""Gives GPU memory that TensorFlow does not use back to the driver once no cell has run for a while.

It does so only where `growth --release` is in force. It looks at nothing that is not imported yet: what is not
imported holds no memory, and loading the extension is to be quick.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from tfgpu_magic.cell_watch import CellWatch
from tfgpu_magic.host import host
from tfgpu_magic.isolate import user_code

PATIENCE = 1.0
"""Seconds that a cell which begins amid a giving back waits for its end; it takes milliseconds."""


class IdleRelease(CellWatch):
    """The timer that runs while a shell is idle, and only where memory can go back.

    It sends nothing and makes no report, so for its server the kernel is as idle as it was.

    Args:
        shell: IPython's shell, whose cells are watched.
        after: returns the seconds to wait; 0 is for ever.
    """

    def __init__(self, shell: Any, after: Callable[[], float]) -> None:
        super().__init__(shell)
        self._seconds = after
        self._timer: threading.Timer | None = None
        self._running = 0  # cells may run cells

    def stop(self) -> None:
        """Watch no more; a giving back that has begun goes on."""
        super().stop()
        if self._timer is not None:
            self._timer.cancel()

    def put_off(self) -> bool:
        """Have nothing given back before the end of the next cell; tell whether nothing is being given back now."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join(PATIENCE)
        return timer is None or not timer.is_alive()

    def _before(self, _: Any) -> None:
        self._running += 1
        self.put_off()  # a wait for the GPUs would spoil a CUDA graph that the cell records

    def _after(self, result: Any) -> None:
        if result is not None and not (result.info.raw_cell or "").strip():
            return  # IPython tells the end of an empty cell, and not its beginning
        self._running = max(0, self._running - 1)  # the cell that loads the extension has begun before it
        seconds = self._seconds()
        if seconds and not self._running and _is_asked():
            self._timer = threading.Timer(min(threading.TIMEOUT_MAX, seconds), _give_back)
            self._timer.name, self._timer.daemon = "tfgpu_magic-idle-release", True
            self._timer.start()


def _is_asked() -> bool:
    """Tell whether `growth --release` is in force."""
    runtime: Any = sys.modules.get("tfgpu_magic.frameworks.runtime")
    plan = getattr(getattr(runtime, "RUNTIME", None), "plan", None)  # another thread may have imported half of it
    return plan is not None and bool(plan.releases)


def _give_back() -> None:
    """Give back, unless code of the user's runs: a wait for the GPUs would spoil a CUDA graph that it records."""
    running = set(user_code.others())
    if host() != "kernel":
        running.discard(threading.main_thread().name)  # it waits for the next line; a kernel's may run a task
    if running:
        return
    cuda: Any = sys.modules["tfgpu_magic.frameworks.cuda"]  # the runtime has imported it
    cuda.give_back()
