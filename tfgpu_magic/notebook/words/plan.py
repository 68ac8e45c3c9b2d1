"""`%tf_gpu plan`: what a policy would do; without one, what the current policy does."""

from __future__ import annotations

from tfgpu_magic.engine import control, plan_answer
from tfgpu_magic.errors import TooLate
from tfgpu_magic.model.answer import Document
from tfgpu_magic.policy import vocabulary
from tfgpu_magic.policy.word import Line

offers = vocabulary.offers


def answer(line: Line) -> Document:
    """Return the plan."""
    policy, of_all = line.rest, line.frameworks == "all"
    if not policy:
        return plan_answer.answer(control.waiting(), control.standing(control.current()))
    try:
        return plan_answer.foreseen(control.plan(policy, frameworks=line.frameworks), policy, of_all=of_all)
    except TooLate as error:
        plan = control.foresee(policy, line.frameworks)
        return plan_answer.foreseen(plan, policy, of_all=of_all, lead=f"{error.beginning} After a restart, ")
