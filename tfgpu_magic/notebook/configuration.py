"""Enforces what no line says: what is configured, what `%config TfGpuMagics` changes of it, the words of a restart."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfgpu_magic.engine import enforcement, engine
from tfgpu_magic.errors import PolicyError, Refused, TooLate
from tfgpu_magic.frameworks import NAMES, runtime
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.ground.message import RESTART, paragraph
from tfgpu_magic.notebook import restart
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.ceiling import read
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.policy import NOTHING, Policy
from tfgpu_magic.policy.requests.default import Default
from tfgpu_magic.policy.settings import CONFIGURATION, policy_for_user

if TYPE_CHECKING:
    from tfgpu_magic.ground.snapshot import Snapshot
    from tfgpu_magic.policy.settings import Settings
    from tfgpu_magic.policy.word import Magic

quieten = runtime.set_log_level
kept_words = restart.kept_words


def enforce(given: Settings, file: Settings, warn: Callable[[str], None]) -> str:
    """Enforce what is configured, as far as possible. If that fails under a ceiling, no GPU may be used.

    Args:
        given: what IPython's configuration sets.
        file: what the administrator's file sets; its ceiling holds here already.
        warn: shows what cannot be enforced.

    Returns:
        The ceiling that holds, as text, or "" if there is none.
    """
    try:
        _restrict(given, warn)
        words, where = policy_for_user(given, file)
        if words or RUNTIME.ceiling is not None:
            if RUNTIME.plan is None:  # else this is loaded again, and what was asked meanwhile stays in force
                enforcement.enforce_configured(words or "growth", where if words else enforcement.CEILING, warn)
            enforcement.hold_others()
    except Exception as error:
        warn(f"tfgpu_magic: What is configured is NOT in force: {type(error).__name__}: {error}")
        enforcement.hold_to_least()
    return ceiling_in_force()


def _restrict(given: Settings, warn: Callable[[str], None]) -> None:
    """Limit this process, and what was asked in it already, to the configuration's ceiling and the environment's."""
    before = RUNTIME.ceiling
    RUNTIME.lower_ceiling(given.ceilings, given.unread)
    held = RUNTIME.ceiling
    for flaw in () if held is None else held.flaws:
        warn(f"tfgpu_magic: {flaw}")
    if held != before and RUNTIME.plan is not None:  # something was asked before the extension was loaded
        try:
            enforcement.enforce_again()
        except TooLate as error:
            warn(f"tfgpu_magic: {error}")


def lower_ceiling(text: str) -> str:
    """Lower the ceiling of this process, and what is in force with it. Return the ceiling that holds now, as text.

    Raises:
        PolicyError: the text is no ceiling.
        Refused: it is higher than the one that holds; or TensorFlow uses the GPUs already.
    """
    now, held = RUNTIME.ceiling, ceiling_in_force()
    if text.strip() == held:
        return held
    if now is not None and not text.strip():
        raise Refused(f"The ceiling here is `{now}`. It can be lowered, and not raised or removed.", verdict=None)
    asked = read(text)
    if now is not None and now.lower_of(asked).amounts == now.amounts:
        if asked.amounts == now.amounts:
            return held
        raise Refused(
            f"The ceiling here is `{now}`. It can be lowered, and not raised: `{asked}` is no lower.", verdict=None
        )
    RUNTIME.lower_ceiling([(text, CONFIGURATION)])
    enforcement.hold_others()
    enforcement.enforce_again()
    return ceiling_in_force()


def ceiling_in_force() -> str:
    """Return the ceiling of this process as text, or "" if there is none."""
    return "" if RUNTIME.ceiling is None else str(RUNTIME.ceiling)


def sets_policy(cell: str) -> bool:
    """Return whether a line of a cell sets a policy, and so says what is in force."""
    names = "|".join(word.name for word in parser.POLICY_WORDS)
    return re.search(rf"^\s*%(?:tf_)?gpu\s+(?:{names})\b", cell, re.MULTILINE | re.IGNORECASE) is not None


def after_restart(words: str, others: str) -> str:
    """Apply the words of a restart that a line asked for, as `resume` does. Return a sentence on what they do now."""
    return engine.standing(resume(words, others, asked=f", asked for with {RESTART},"))


def resume(
    words: str, others: str = "", *, asked: str = "", see: Callable[[], Snapshot] = enforcement.look_well
) -> Plan:
    """Apply the words of a restart in the new process. They are the whole policy: the configured one is not added.

    Args:
        words: the policy for TensorFlow.
        others: that for the other frameworks; empty if nothing is asked of them.
        asked: what a refusal says beside the words.
        see: returns a snapshot of the GPUs; by default one taken now.

    Raises:
        PolicyError: the words are no policy.
        Refused: the policy cannot be enforced; its verdict says what holds for every framework all the same.
    """
    try:
        return _resume(words, others, see)
    except Refused as error:
        there = engine.current().asked_of_all
        held = [f"`{there}` is, for every framework."] if others and there.requests else []
        error.verdict = paragraph((f"`{words}`{asked} is NOT in force.", *held))
        raise


def _resume(words: str, others: str, see: Callable[[], Snapshot]) -> Plan:
    reset, wanted, of_others = Policy((Default(),)), parser.parse(words), parser.parse(others) if others else NOTHING
    memory = of_others.for_framework(NAMES["tensorflow"]).memory
    if memory and memory == wanted.memory:  # TensorFlow is asked what all are: it is asked as one of them
        rest = (request for request in wanted if request not in memory)
        return engine.apply(Policy((*reset, *rest, *of_others)), frameworks="all", see=see)
    if others:
        engine.apply(Policy((*reset, *of_others)), frameworks="all", see=see)
    return engine.apply(Policy((*reset, *wanted)), see=see)


def magic_for(policy: str) -> Magic:
    """Return the magic whose line sets a policy: for every framework if each can be asked it."""
    try:
        return "gpu" if parser.parse(policy).of_any_framework else "tf_gpu"
    except PolicyError:  # the line says why
        return "tf_gpu"


def warm() -> None:
    """Get ready for isolated cells."""
    _isolation().FORK_SERVER.process()


def set_grace(seconds: float) -> None:
    """Set the seconds in which an isolated call may end when its timeout has interrupted it."""
    _isolation().watch.GRACE = seconds


def _isolation() -> Any:
    from tfgpu_magic.isolate import run  # few users set anything of it, and few make isolated calls

    return run
