"""Publishes this process's report on the board, and renews its claim. `reporter` decides when. It is slow to import."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tfgpu_magic.claims.ledger import LEDGER
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.frameworks import registry, self_report
from tfgpu_magic.ground.report import Report
from tfgpu_magic.insight.timeline import TIMELINE
from tfgpu_magic.machine.board.report_files import AT_LEAST_EVERY, ReportFile
from tfgpu_magic.machine.owners.pids import kernel_id, notebook_of_shell


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
        self._report_file = ReportFile()

    def publish(self, *, busy: bool | None, active: float | None, promises: bool = True) -> None:
        """Replace the last report with a new one. A board that cannot be written to is ignored.

        Args:
            busy: whether a cell or a job runs; None of a program, of which that means nothing.
            active: when one last began or ended, in seconds since the epoch; None of a program.
            promises: whether it may take what its policy allows; not if it only starts kernels, which claim that.
        """
        before = LEDGER.own_claim()
        try:
            report = self_report.short_report()
            claims = self_report.claims(report)
            LEDGER.renew(before, claims if promises else dict.fromkeys(claims))
            self.ready = bool(registry.active())
        except Exception:  # TensorFlow's have no common root, and a thread's error is printed into a cell
            report = Report(pid=os.getpid(), summary="")
        TIMELINE.sample(registry.pools())  # some 10 µs a GPU
        report = replace(
            report,
            notebook=self._path(),
            busy=busy,
            active=active,
            slot=LEDGER.slot,
            kernel=kernel_id(sys.orig_argv),
        )
        with contextlib.suppress(MonitorError, OSError):  # it may be put right meanwhile
            self._report_file.post(report)

    @property
    def imports(self) -> bool:
        """Whether this process has imported a framework."""
        return bool(registry.imported_names())

    def close(self) -> None:
        """Remove the last report."""
        with contextlib.suppress(OSError):
            self._report_file.close()


def of_kernel(shell: Any) -> Publisher:
    """Return the publisher of a shell's reports."""
    return Publisher(partial(notebook_of_shell, shell))
