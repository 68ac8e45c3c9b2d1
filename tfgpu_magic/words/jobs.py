"""`%tf_gpu jobs`: the cells and calls that go on by themselves, and an end to one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfgpu_magic.config.word import Line, Word
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.monitor.look import look

if TYPE_CHECKING:
    from tfgpu_magic.views.jobs import Jobs

_STOP = "stop"


def _answer(said: Line) -> Jobs:
    """List the jobs, once the one that is to be stopped is told so."""
    from tfgpu_magic.isolate import job_list  # calls are a room that few need
    from tfgpu_magic.views.jobs import Jobs

    verb, _, number = said.rest.partition(" ")
    if said.rest and not (verb == _STOP and number.isdecimal() and job_list.stop(int(number))):
        running = ", ".join(map(str, job_list.running()))
        these = f"Job {running} can be stopped." if running else "No job runs."
        raise PolicyError(f"`jobs {said.rest}` cannot be done. {these}{WORD.forms}")
    return Jobs(tuple(job_list.statuses()), look())


def _offers(said: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    return [] if said else [_STOP]


WORD = Word(
    "jobs",
    ("jobs", "jobs stop 1"),
    "the isolated cells that run in the background, and their states; `stop` ends one",
    offers=_offers,
    answer=_answer,
)
