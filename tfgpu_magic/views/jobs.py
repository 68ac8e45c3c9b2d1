"""The result of `%tf_gpu jobs`: the cells and calls in the background, as text and as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgpu_magic.views import html, phrases, text

if TYPE_CHECKING:
    from tfgpu_magic.isolate.job_list import JobStatus
    from tfgpu_magic.monitor.snapshot import Snapshot

_HEADS = (">Job", "<State", ">Time", ">PID", "<Held", "<What")
_NONE = "No isolated cell or call goes on by itself. `%%tf_gpu isolate --detach` begins one."
_LONGEST = 60  # characters of a cell's line


@dataclass(frozen=True, slots=True, repr=False)
class Jobs:
    """The jobs of this kernel; IPython shows them as HTML or as text.

    Attributes:
        statuses: the status of each.
        snapshot: the driver's figures, for what each holds.
    """

    statuses: tuple[JobStatus, ...]
    snapshot: Snapshot

    def __repr__(self) -> str:
        rows = [self._row(job) for job in self.statuses]
        return "\n".join(text.columns(_HEADS, rows)) if rows else _NONE

    def _repr_html_(self) -> str:
        rows = ["".join(map(html.cell, _HEADS, self._row(job))) for job in self.statuses]
        return html.page(html.grid("Jobs", _HEADS, rows) if rows else f"<p>{html.prose(_NONE)}</p>")

    def _row(self, job: JobStatus) -> list[str]:
        held = [
            f"{phrases.with_unit(process.held)} of GPU {process.gpu}"
            for process in self.snapshot.processes
            if process.pid == job.pid
        ]
        pid = "-" if job.pid is None else str(job.pid)
        line = phrases.plain(job.title, longest=_LONGEST)
        return [str(job.number), job.state, phrases.seconds(job.seconds), pid, ", ".join(held) or "-", line]
