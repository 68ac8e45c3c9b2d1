"""A policy as a line: what its words say of themselves is their own; what is done is the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgpu_magic import administrator, control
from tfgpu_magic.config import completions
from tfgpu_magic.config.flags import RESTART
from tfgpu_magic.config.runtime import current_stage
from tfgpu_magic.config.word import Line, Word
from tfgpu_magic.errors import TooLate
from tfgpu_magic.host import host
from tfgpu_magic.monitor.look import LOOK_TIMEOUT, Looking
from tfgpu_magic.views.plan import PlanAnswer


def word(first: Word) -> Word:
    """A policy's word as the first of a line, behind which the rest of that policy and others stand."""

    def offers(said: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
        return completions.policy([first.name, *said], gpus, RESTART)

    return Word(
        name=first.name,
        usage=first.usage,
        meaning=first.meaning,
        offers=offers,
        also=first.also,
        tried=first.tried,
        instead=first.instead,
        restart=True,
        answer=_answer,
    )


def _answer(said: Line) -> PlanAnswer:
    """Apply a policy here; or if it is too late, and that is wanted, in a new kernel."""
    looking = Looking(LOOK_TIMEOUT)  # while the words are read
    try:
        plan = control.apply(said.text, see=lambda: looking.result(administrator.slow))
    except TooLate:
        if not said.restart:
            raise
        asked = control.foresee(said.text).asked  # a process is not given up for words that cannot be had
        if host() != "kernel":
            raise
    else:
        return PlanAnswer(plan, control.standing(plan, current_stage()))
    from tfgpu_magic.restart import restart  # Jupyter Server's part of the house

    return restart(str(asked) or "default")
