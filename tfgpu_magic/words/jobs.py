"""`%tf_gpu jobs`: lists the cells and calls that run in the background, or stops one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfgpu_magic.config.word import Line, Word
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.monitor.look import look

if TYPE_CHECKING:
    from tfgpu_magic.views.jobs import Jobs

_STOP = "stop"


def _answer(line: Line) -> Jobs:
    """Return the list of the jobs; if one is to be stopped, it is asked to stop first."""
    from tfgpu_magic.isolate import job_list  # few users need isolated calls, and these modules are slow to import
    from tfgpu_magic.views.jobs import Jobs

    verb, _, number = line.rest.partition(" ")
    if line.rest and not (verb == _STOP and number.isdecimal() and job_list.stop(int(number))):
        running = ", ".join(map(str, job_list.running()))
        these = f"Job {running} can be stopped." if running else "No job runs."
        raise PolicyError(f"`jobs {line.rest}` cannot be done. {these}{WORD.forms}")
    return Jobs(tuple(job_list.statuses()), look())


def _offers(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    return [] if tokens else [_STOP]


WORD = Word(
    "jobs",
    ("jobs", "jobs stop 1"),
    "the isolated cells that run in the background, and their states; `stop` ends one",
    offers=_offers,
    answer=_answer,
)
