"""`%tf_gpu jobs`: lists the cells and calls that run in the background, or stops one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgpu_magic.config.word import Line
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.isolate import job_list
from tfgpu_magic.monitor.look import look
from tfgpu_magic.views.jobs import Jobs

_STOP = "stop"


def answer(line: Line) -> Jobs:
    """Return the list of the jobs; if one is to be stopped, that is begun first."""
    verb, _, number = line.rest.partition(" ")
    if line.rest and not (verb == _STOP and number.isdecimal() and job_list.stop(int(number))):
        running = ", ".join(map(str, job_list.running()))
        these = f"Job {running} can be stopped." if running else "No job runs."
        raise PolicyError(f"`jobs {line.rest}` cannot be done. {these}{line.word.forms}")
    return Jobs(tuple(job_list.statuses()), look())


def offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return what may be done."""
    return [] if tokens else [_STOP]
