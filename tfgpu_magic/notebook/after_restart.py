"""Applies the words of a restart in the kernel that was started for them: they are the whole policy there."""

from __future__ import annotations

from tfgpu_magic.engine.control import apply, current
from tfgpu_magic.errors import Refused
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.frameworks import NAMES
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.policy import NOTHING, Policy
from tfgpu_magic.policy.requests.default import Default


def resume(words: str, others: str = "", *, asked: str = "") -> Plan:
    """Apply the words of a restart in the new process. They are the whole policy: the configured one is not added.

    Args:
        words: the policy for TensorFlow.
        others: that for the other frameworks; empty where nothing is asked of them.
        asked: what a refusal says beside the words.

    Raises:
        PolicyError: the words are no policy.
        Refused: the policy cannot be enforced; its verdict says what holds for every framework all the same.
    """
    try:
        return _apply(words, others)
    except Refused as error:
        there = current().others.asked
        held = f" `{there}` is, for every framework." if others and there.requests else ""
        error.verdict = f"`{words}`{asked} is NOT in force.{held}"
        raise


def _apply(words: str, others: str) -> Plan:
    reset, wanted, of_others = Policy((Default(),)), parser.parse(words), parser.parse(others) if others else NOTHING
    memory = of_others.for_framework(NAMES["tensorflow"]).memory
    if memory and memory == wanted.memory:  # TensorFlow is asked what all are: it is asked as one of them
        rest = (request for request in wanted if request not in memory)
        return apply(Policy((*reset, *rest, *of_others)), frameworks="all")
    if others:
        apply(Policy((*reset, *of_others)), frameworks="all")
    return apply(Policy((*reset, *wanted)))
