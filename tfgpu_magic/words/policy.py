"""A policy as a line: `config.requests` describes its words; what a line does is the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgpu_magic import administrator, control
from tfgpu_magic.config import vocabulary
from tfgpu_magic.config.flags import RESTART
from tfgpu_magic.config.plan import Plan
from tfgpu_magic.config.word import Line
from tfgpu_magic.errors import TooLate
from tfgpu_magic.host import host
from tfgpu_magic.monitor.look import LOOK_TIMEOUT, Looking
from tfgpu_magic.views import plan as views
from tfgpu_magic.views.answer import Document


def offers(tokens: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
    """Return what may follow in a policy, of which the line's word is a part."""
    return vocabulary.offers(tokens, gpus, RESTART)


def answer(line: Line) -> Document:
    """Apply a policy here; or if it is too late and `--restart` is given, in a new kernel."""
    looking = line.looking or Looking(LOOK_TIMEOUT)  # it queries the GPUs while the words are parsed
    try:
        plan = control.apply(line.text, frameworks=line.frameworks, see=lambda: looking.result(administrator.slow))
    except TooLate:
        if not line.restart:
            raise
        plan = control.foresee(line.text, line.frameworks)  # no kernel is given up for what cannot be enforced
        if host() != "kernel":
            raise
    else:
        return views.answer(plan, _standing(plan, line))
    from tfgpu_magic.restart import restart  # it imports psutil and more, and restarts are rare

    return restart(str(plan.asked) or "default", str(administrator.said_to_others(plan)))


def _standing(plan: Plan, line: Line) -> str:
    if line.frameworks == "tensorflow":
        return control.standing(plan)
    from tfgpu_magic import framework_notes

    return framework_notes.standing(plan)
