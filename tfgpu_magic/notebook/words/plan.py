"""`%tf_gpu plan`: what a policy would do; without one, what the current policy does."""

from __future__ import annotations

from tfgpu_magic.engine import answers, engine
from tfgpu_magic.errors import TooLate
from tfgpu_magic.model.answer import Document
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.word import Line

offers = parser.offers


def answer(line: Line) -> Document:
    """Return the plan."""
    policy, of_all = line.rest, line.frameworks == "all"
    if not policy:
        return answers.answer(engine.waiting(), engine.standing(engine.current()))
    try:
        return answers.foreseen(engine.plan(policy, frameworks=line.frameworks), policy, of_all=of_all)
    except TooLate as error:
        plan = engine.foresee(policy, line.frameworks)
        return answers.foreseen(plan, policy, of_all=of_all, lead=f"{error.beginning} After a restart, ")
