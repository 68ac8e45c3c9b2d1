"""Applies the words of a restart in the kernel that was started for them: they are the whole policy there."""

from __future__ import annotations

from tfgpu_magic.config import parser
from tfgpu_magic.config.frameworks import NAMES
from tfgpu_magic.config.plan import Plan
from tfgpu_magic.config.policy import NOTHING, Policy
from tfgpu_magic.config.requests.default import Default
from tfgpu_magic.control import apply, current


def resume(words: str, others: str = "") -> Plan:
    """Apply the words of a restart in the new process. They are the whole policy: the configured one is not added.

    Args:
        words: the policy for TensorFlow.
        others: that for the other frameworks; empty where nothing is asked of them.

    Raises:
        PolicyError: the words are no policy.
        Refused: the policy cannot be enforced; that for the other frameworks may be in force.
    """
    reset, asked, of_others = Policy((Default(),)), parser.parse(words), parser.parse(others) if others else NOTHING
    memory = of_others.for_framework(NAMES["tensorflow"]).memory
    if memory and memory == asked.memory:  # TensorFlow is asked what all are: it is asked as one of them
        rest = (request for request in asked if request not in memory)
        return apply(Policy((*reset, *rest, *of_others)), frameworks="all")
    if others:
        apply(Policy((*reset, *of_others)), frameworks="all")
    return apply(Policy((*reset, *asked)))


def not_resumed(asked: str, others: str) -> str:
    """Return the verdict on words of a restart that were refused, with what holds for every framework all the same.

    Args:
        asked: the words for TensorFlow, as a phrase.
        others: as `resume` has it.
    """
    there = current().others
    held = f" `{there}` is, for every framework." if others and there.requests else ""
    return f"{asked} is NOT in force.{held}"
