"""Publishes this kernel's report on the board; `reporter` decides when, and imports this late, as it is slow."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from typing import Any

from tfgpu_magic.config import self_report
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.directory import BoardDirectory
from tfgpu_magic.monitor.process_names import notebook_path
from tfgpu_magic.monitor.report import Report
from tfgpu_magic.monitor.report_files import AT_LEAST_EVERY, ReportFile

__all__ = ["AT_LEAST_EVERY", "Publisher"]


class Publisher:
    """The publisher of a kernel's reports. Not thread-safe: closing it would race with a report.

    Args:
        shell: IPython's shell, whose namespace may hold the notebook's path.

    Attributes:
        ready: whether TensorFlow's runtime had started at the last report, so that its figures may change by
            themselves.
    """

    def __init__(self, shell: Any) -> None:
        self.ready = False
        self._shell = shell
        self._used_since: float | None = None
        self._report_file: ReportFile | None = None

    def publish(self, *, busy: bool, active: float) -> None:
        """Replace the last report with a new one; a board that cannot be written to is ignored.

        Args:
            busy: whether a cell or a job runs.
            active: when one last began or ended, in seconds since the epoch.
        """
        try:
            report = self_report.brief()
            self.ready = report.stage == Stage.READY.value
        except Exception:  # TensorFlow's have no common root, and a thread's error is printed into a cell
            report = Report(pid=os.getpid(), summary="")
        if self._used_since is None and any(use.taken for use in report.uses):
            self._used_since = time.time()
        notebook = _notebook(self._shell)
        report = replace(report, notebook=notebook, busy=busy, active=active, used_since=self._used_since)
        with contextlib.suppress(MonitorError, OSError):  # it may be put right meanwhile
            self._place().post(report)

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


def _notebook(shell: Any) -> str:
    """Return the notebook's path, if Jupyter Server or VS Code passes it to the kernel; else an empty text."""
    code = shell.user_ns.get("__vsc_ipynb_file__")
    return notebook_path(os.environ) or (code if isinstance(code, str) else "")
