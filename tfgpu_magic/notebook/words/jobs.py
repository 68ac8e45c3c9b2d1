"""`%tf_gpu jobs`: lists the cells and calls that run in the background, or stops one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.answer import Document, grid
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.isolate import job_list
from tfgpu_magic.isolate.job_list import JobStatus
from tfgpu_magic.machine.see import look
from tfgpu_magic.policy.word import ParsedLine

_STOP = "stop"
_HEADS = (">Job", "<State", ">Time", ">PID", "<Held", "<What")
_NONE = "No isolated cell or call goes on by itself. `%%tf_gpu isolate --detach` begins one."
_LONGEST = 60  # characters of a cell's line


def run(line: ParsedLine) -> Document:
    """Return the list of the jobs, after a job that is to be stopped has been asked to end."""
    verb, _, number = line.rest.partition(" ")
    if line.rest and not (verb == _STOP and number.isdecimal() and job_list.stop(int(number))):
        running = ", ".join(map(str, job_list.running()))
        these = f"Job {running} can be stopped." if running else "No job runs."
        raise line.word.error(f"`jobs {line.rest}` cannot be done. {these}")
    return listed(job_list.statuses(), look())


def listed(jobs: Sequence[JobStatus], snapshot: Snapshot) -> Document:
    """Return the jobs as a table, with what each holds of the GPUs."""
    return Document(grid(_HEADS, [_row(job, snapshot) for job in jobs], "Jobs") if jobs else _NONE)


def _row(job: JobStatus, snapshot: Snapshot) -> list[str]:
    held = [
        f"{phrases.with_unit(process.held)} of GPU {process.gpu}"
        for process in snapshot.processes
        if process.pid == job.pid
    ]
    pid = "-" if job.pid is None else str(job.pid)
    line = phrases.clean(job.title, longest=_LONGEST)
    return [str(job.number), job.state, phrases.seconds(job.seconds), pid, ", ".join(held) or "-", line]


def completions(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return what may be done."""
    return [] if tokens else [_STOP]
