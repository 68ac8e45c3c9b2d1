"""`%tf_gpu plan`: what a policy would do; without one, what the current policy does."""

from __future__ import annotations

from tfgpu_magic import control
from tfgpu_magic.config import vocabulary
from tfgpu_magic.config.word import Line
from tfgpu_magic.errors import TooLate
from tfgpu_magic.views import plan as views
from tfgpu_magic.views.answer import Document

offers = vocabulary.offers


def answer(line: Line) -> Document:
    """Return the plan."""
    policy, of_all = line.rest, line.frameworks == "all"
    if not policy:
        return views.answer(control.waiting(), control.standing(control.current()))
    try:
        return views.foreseen(control.plan(policy, frameworks=line.frameworks), policy, of_all=of_all)
    except TooLate as error:
        plan = control.foresee(policy, line.frameworks)
        return views.foreseen(plan, policy, of_all=of_all, lead=f"{error.beginning} After a restart, ")
