"""`%tf_gpu plan`: what a policy would do; without one, what the current policy does."""

from __future__ import annotations

from tfgpu_magic import control
from tfgpu_magic.config import completions
from tfgpu_magic.config.runtime import current_stage
from tfgpu_magic.config.word import Line, Word
from tfgpu_magic.errors import TooLate
from tfgpu_magic.views.plan import PlanAnswer


def _answer(line: Line) -> PlanAnswer:
    policy = line.rest
    if not policy:
        return PlanAnswer(control.waiting(), control.standing(control.current(), current_stage()))
    try:
        plan = control.plan(policy, frameworks=line.frameworks)
        asked = plan.asked if line.frameworks == "tensorflow" else plan.others
        return PlanAnswer(plan, f"`{str(asked) or policy}` would do this:")
    except TooLate as error:
        plan = control.foresee(policy, line.frameworks)
        after = f"After a restart, `{str(plan.asked) or policy}` would do this:"
        return PlanAnswer(plan, f"{error.reason} {after}")


WORD = Word(
    "plan",
    ("plan WORDS",),
    "what the words would do, GPU by GPU; nothing is done",
    offers=completions.policy,
    answer=_answer,
)
