"""A policy as a line: what its words say of themselves is their own; what is done is the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfgpu_magic.config import completions
from tfgpu_magic.config.grammar import RESTART
from tfgpu_magic.config.word import Said, Word
from tfgpu_magic.errors import TooLate
from tfgpu_magic.host import host

if TYPE_CHECKING:
    from tfgpu_magic.views.outcome import Outcome


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


def apply(policy: str) -> Outcome:
    """Apply a policy to this process.

    Raises:
        PolicyError: the text is none.
        Refused: it cannot be enforced; nothing was changed.
    """
    from tfgpu_magic.monitor.look import PATIENCE, Looking

    looking = Looking(PATIENCE)  # the GPUs are looked at while the rest of the house is imported
    from tfgpu_magic import administrator, control
    from tfgpu_magic.views.outcome import Outcome

    plan = control.apply(policy, see=lambda: looking.result(administrator.slow))
    return Outcome(plan, control.standing(plan))


def _answer(said: Said) -> Outcome:
    """Apply a policy here; or if it is too late, and that is wanted, in a new kernel."""
    try:
        return apply(said.text)
    except TooLate:
        if not said.restart:
            raise
        from tfgpu_magic import control  # it is there by now

        asked = control.foresee(said.text).asked  # a process is not given up for words that cannot be had
        if host() != "kernel":
            raise
    from tfgpu_magic.restart import restart  # few lines need Jupyter Server

    return restart(str(asked) or "default")
