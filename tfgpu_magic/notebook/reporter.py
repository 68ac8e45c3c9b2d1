"""Has `publisher` report on this process when `report_schedule` says: each second of work, and at each cell's end.

A kernel has a thread for it, so no cell waits. While no cell runs and no framework uses a GPU, the thread sleeps. A
program has none before it imports a framework: one that forks, or uses no GPU, stays as it was. One that starts
kernels, as Jupyter Server, promises nothing before that either: they have the policy, and report it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from tfgpu_magic.frameworks import NAMES, import_hook
from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.process_kind import UseWatch
from tfgpu_magic.notebook.report_schedule import (
    Due,
    Event,
    Reported,
    ReporterDeed,
    ReporterState,
    Turned,
    Used,
    step,
    wait,
)

if TYPE_CHECKING:
    from tfgpu_magic.notebook.publisher import Publisher

PATIENCE = 1.0
"""Seconds that the end of the process waits for a report that is being made."""

KERNEL_MANAGER = "jupyter_client"
"""What a program imports that starts kernels."""

_GATHER = 0.1  # seconds: cells that run one after the other make one report


class Reporter(UseWatch):
    """The reporter of this process.

    Args:
        shell: IPython's shell, whose cells are watched; None in a program.
        name: what a program is called, or the path of a file that is called so; empty leaves it to its command line.
        running: whether a cell is running now.

    Attributes:
        state: what decides when it reports.
    """

    def __init__(self, shell: Any = None, name: str = "", *, running: bool = False) -> None:
        super().__init__(shell, running=running)
        process_kind.announce = self.announce
        self._name, self._pid = name, os.getpid()
        self._has_kernels = False
        self.state = ReporterState(time.time(), program=shell is None, running=running)
        self._stepping = threading.Lock()
        self._publisher: Publisher | None = None
        self._publishing = threading.Lock()  # the thread publishes, and whoever announces
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfgpu_magic-reporter", daemon=True)

    def start(self) -> None:
        """Watch the cells, and report. In a program, report now, and again once it has imported a framework."""
        atexit.register(self.stop)
        if self._shell is not None:
            super().start()
            self._thread.start()
            return
        self.announce()
        for framework in NAMES:
            import_hook.call_at_import(self._imported, framework)
        import_hook.call_at_import(self._starts_kernels, KERNEL_MANAGER)

    def stop(self) -> None:
        """Stop reporting, and remove the last report. May be called twice."""
        if self._forked() or self._ended.is_set():
            return
        self._ended.set()
        atexit.unregister(self.stop)
        if self._shell is not None:
            super().stop()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)
        self._close()

    def announce(self) -> None:
        """Report soon; without a thread, at once."""
        if self._forked() or self._ended.is_set():
            return
        if self._thread.is_alive():
            self._wake.set()
        elif self._publishing.acquire(timeout=PATIENCE):
            try:
                self._publish()
            finally:
                self._publishing.release()

    def note_idle(self) -> None:
        """Note that the cell that loads the extension is none: IPython sends no event at the end of a silent one."""
        self._cells.clear()
        self._cells_changed()

    def _cells_changed(self) -> None:
        self._step(Turned(self._running))

    def _note_use(self) -> None:
        self._step(Used())

    def _step(self, event: Event) -> None:
        if self._forked():
            return
        with self._stepping:
            self.state, deeds = step(self.state, event, time.time())
        if ReporterDeed.WAKE in deeds:
            self._wake.set()
        if ReporterDeed.SHOW_ACTIVITY in deeds:
            self._show_activity()

    def _imported(self, _: object = None) -> None:
        if self._forked():
            return
        # Two threads may import one each, and if no thread can be started, an import goes on all the same.
        with self._publishing, contextlib.suppress(RuntimeError):
            if self._thread.ident is None:
                self._thread.start()

    def _starts_kernels(self, _: object = None) -> None:
        self._has_kernels = True
        self.announce()

    def _forked(self) -> bool:
        """Return whether this is a child, which has neither the thread nor the report, and whose lock may be held."""
        return os.getpid() != self._pid

    def _run(self) -> None:
        while self._due():
            self._step(Due(self._has_jobs()))
            begin = time.perf_counter()
            with self._publishing:
                self._publish()
            took, made = time.perf_counter() - begin, self._publisher
            if made is not None:
                self._step(Reported(took, made.ready, made.longest))
        self._close()

    def _due(self) -> bool:
        """Wait until a report is due. Return False when none is due any more."""
        if self._wake.wait(wait(self.state, time.time())):
            self._ended.wait(_GATHER)
            self._wake.clear()
        return not self._ended.is_set()

    def _publish(self) -> None:
        if self._ended.is_set():
            return
        if self._publisher is None:
            from tfgpu_magic.notebook import publisher  # loading the extension, and a first line, need not wait for it

            program = self._shell is None
            self._publisher = publisher.Publisher(lambda: self._name) if program else publisher.of_kernel(self._shell)
        state = self.state  # before the figures are read: a cell may end meanwhile
        promises = not self._has_kernels or self._publisher.imports
        active = None if state.program else state.active
        self._publisher.publish(busy=state.busy, active=active, promises=promises)

    def _close(self) -> None:
        """Remove the last report, after the thread has written one that it is making now."""
        if self._publishing.acquire(timeout=PATIENCE):
            if self._publisher is not None:
                self._publisher.close()
            self._publishing.release()

    def _has_jobs(self) -> bool:
        """Return whether background cells and calls of a kernel run."""
        listed: Any = None if self.state.program else sys.modules.get("tfgpu_magic.isolate.job_list")
        return bool(getattr(listed, "running", tuple)())  # a cell may be importing it, and has run half of it

    def _show_activity(self) -> None:
        """Send a message: a server counts any as activity, and no front end shows one for a comm that is not there."""
        content = {"comm_id": "tfgpu_magic", "data": {}}
        with contextlib.suppress(Exception):  # a kernel that is ending
            kernel = self._shell.kernel
            kernel.session.send(kernel.iopub_socket, "comm_msg", content, ident=b"comm-tfgpu_magic")
