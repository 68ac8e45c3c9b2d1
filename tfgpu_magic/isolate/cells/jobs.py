"""Isolated cells that go on by themselves: futures, whose output comes below their cell. `listed` knows them all."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from tfgpu_magic.isolate.cells.cell import Cell
from tfgpu_magic.isolate.listed import Listed


class Job(Listed[Any]):
    """An isolated cell that goes on while the notebook does other things; a `concurrent.futures.Future` of its value.

    `job.result()` waits for it and gives its value, or raises what it raised. Its ``-o`` names are in the notebook
    when it is done.
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell.title)
        self._cell: Cell | None = cell  # until it has ended: it has a copy of all that it reads
        self.enlist()
        self.set_running_or_notify_cancel()
        threading.Thread(target=self._run, args=(cell,), name=f"tfgpu_magic-job-{self.number}", daemon=True).start()

    @property
    def pid(self) -> int | None:
        """Its process, once it has one."""
        cell = self._cell
        return None if cell is None else cell.pid

    def stop(self) -> None:
        """Interrupt it, as Ctrl-C interrupts a cell; it is killed when it does not heed that, or at the second time."""
        cell = self._cell
        if cell is not None:
            cell.stop()

    def __repr__(self) -> str:
        return f"<Job {self.number}, {self.standing().state}: {self.title}>"

    def _run(self, cell: Cell) -> None:
        try:
            value = cell.run()
            self._cell = None
            self.set_result(value)
        except BaseException as error:  # also the KeyboardInterrupt of `stop`
            self._cell = None
            self.set_exception(error.with_traceback(None))  # which is ours, and would keep the cell
            lines = getattr(error, "_render_traceback_", list)() or [f"{type(error).__name__}: {error}"]
            with contextlib.suppress(Exception):  # a kernel that is ending hears nothing any more
                cell.screen.write("stderr", "\n".join(lines) + "\n")
        self.remember()
