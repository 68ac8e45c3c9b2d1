"""Publishes this process's report on the board. `reporter` decides when. It is slow to import."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.frameworks import registry, self_report
from tfgpu_magic.ground.report import Report
from tfgpu_magic.insight.timeline import TIMELINE
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import AT_LEAST_EVERY, ReportFile
from tfgpu_magic.machine.owners.pids import kernel_id, notebook_of


class Publisher:
    """The publisher of a kernel's or a program's reports. Not thread-safe: closing it would race with a report.

    Args:
        path: returns the path of the notebook or of the program; empty if it is not known.

    Attributes:
        ready: whether a framework used a GPU at the last report, so that its figures may change by themselves.
        longest: the most seconds between two reports while they may.
    """

    longest = AT_LEAST_EVERY

    def __init__(self, path: Callable[[], str]) -> None:
        self.ready = False
        self._path = path
        self._used_since: float | None = None
        self._report_file: ReportFile | None = None

    def publish(self, *, busy: bool | None, active: float | None, promises: bool = True) -> None:
        """Replace the last report with a new one. A board that cannot be written to is ignored.

        Args:
            busy: whether a cell or a job runs; None of a program, of which that means nothing.
            active: when one last began or ended, in seconds since the epoch; None of a program.
            promises: as in `Report`.
        """
        try:
            report = self_report.brief()
            self.ready = bool(registry.awake())
        except Exception:  # TensorFlow's have no common root, and a thread's error is printed into a cell
            report = Report(pid=os.getpid(), summary="")
        TIMELINE.sample(registry.pools())  # some 10 µs a GPU
        if self._used_since is None and any(use.taken for use in report.uses):
            self._used_since = time.time()
        report = replace(
            report,
            notebook=self._path(),
            busy=busy,
            active=active,
            used_since=self._used_since,
            promises=promises,
            kernel=kernel_id(sys.orig_argv),
        )
        with contextlib.suppress(MonitorError, OSError):  # it may be put right meanwhile
            self._place().post(report)

    @property
    def imports(self) -> bool:
        """Whether this process has imported a framework."""
        return bool(registry.imported())

    def close(self) -> None:
        """Remove the last report."""
        if self._report_file is not None:
            with contextlib.suppress(OSError):
                self._report_file.close()

    def _place(self) -> ReportFile:
        if self._report_file is None or not self._report_file.is_there():
            old, self._report_file = self._report_file, None
            if old is not None:
                old.close()
            self._report_file = ReportFile(BoardDirectory())
        return self._report_file


def of_kernel(shell: Any) -> Publisher:
    """Return the publisher of a shell's reports."""
    return Publisher(partial(notebook_of, shell))
