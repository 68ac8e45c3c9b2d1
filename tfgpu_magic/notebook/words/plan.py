"""`%tf_gpu plan`: what a policy would do, or without one, what the current policy does."""

from __future__ import annotations

from tfgpu_magic.engine import engine
from tfgpu_magic.errors import TooLate
from tfgpu_magic.ground.answer import Document
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.word import ParsedLine

completions = parser.offers


def run(line: ParsedLine) -> Document:
    """Return the plan."""
    policy, frameworks = line.rest, line.frameworks
    if not policy:
        return engine.answer(engine.waiting(), engine.standing(engine.current(), frameworks))
    try:
        return engine.would_do(engine.plan(policy, frameworks=frameworks), policy, frameworks)
    except TooLate as error:
        return engine.would_do(
            engine.foresee(policy, frameworks), policy, frameworks, f"{error.beginning} After a restart, "
        )
