"""`%tf_gpu jobs`: lists the cells and calls that run in the background, or stops one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgpu_magic.config.word import Line
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.isolate import job_list
from tfgpu_magic.monitor.look import look
from tfgpu_magic.views.jobs import Jobs

_STOP, _PARK, _UNPARK = "stop", "park", "unpark"


def answer(line: Line) -> Jobs:
    """Return the list of the jobs; if something is to be done to one, that is begun first."""
    verb, _, number = line.rest.partition(" ")
    way = job_list.way(int(number)) if verb in (_PARK, _UNPARK) and number.isdecimal() else None
    if way is not None and verb == _UNPARK:
        way.unpark()
    elif way is not None and (said := way.park()):
        print(said)
    elif way is None and line.rest and not (verb == _STOP and number.isdecimal() and job_list.stop(int(number))):
        running = ", ".join(map(str, job_list.running()))
        done = "runs" if verb in (_PARK, _UNPARK) else "can be stopped"
        these = f"Job {running} {done}." if running else "No job runs."
        raise PolicyError(f"`jobs {line.rest}` cannot be done. {these}{line.word.forms}")
    return Jobs(tuple(job_list.statuses()), look())


def offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return what may be done."""
    return [] if tokens else [_STOP, _PARK, _UNPARK]
