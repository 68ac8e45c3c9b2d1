"""The ceiling of this process: lowered by the configuration and by its user, with what is in force under it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tfgpu_magic import administrator, other_processes
from tfgpu_magic.config import ceiling, fallback, import_hook
from tfgpu_magic.config.plan import Plan, make
from tfgpu_magic.config.policy import NOTHING
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.runtime import RUNTIME, current_stage
from tfgpu_magic.errors import Refused, TooLate
from tfgpu_magic.host import here

CONFIGURATION = "the configuration"
"""The source of what `c.TfGpuMagics` says, as a phrase."""


def restrict(text: str, warn: Callable[[str], None] = import_hook.warn) -> bool:
    """Hold this process, and what was asked in it already, under a ceiling and that of the environment.

    Args:
        text: the configuration's ceiling; may be empty.
        warn: shows what could not be understood.

    Returns:
        Whether there is a ceiling.
    """
    before = RUNTIME.ceiling
    if text.strip():
        RUNTIME.lower_ceiling(text, CONFIGURATION)
    held = RUNTIME.ceiling
    if held != before and RUNTIME.plan is not None:  # something was asked before the extension was loaded
        try:
            _apply_anew()
        except TooLate as error:
            warn(f"tfgpu_magic: {error}")
    for flaw in () if held is None else held.flaws:
        warn(f"tfgpu_magic: {flaw}")
    return held is not None


def lower(text: str) -> str:
    """Lower the ceiling of this process, and what is in force with it; return the ceiling that holds now, as text.

    Raises:
        PolicyError: the text is no ceiling.
        Refused: it is higher than the one that holds; or TensorFlow uses the GPUs already.
    """
    now, held = RUNTIME.ceiling, in_force()
    if text.strip() == held:
        return held
    if now is not None and not text.strip():
        raise Refused(f"The ceiling here is `{now}`. It can be lowered, and not raised or removed.", verdict="")
    asked = ceiling.read(text)
    if now is not None and now.lower_of(asked).amounts == now.amounts:
        if asked.amounts == now.amounts:
            return held
        raise Refused(
            f"The ceiling here is `{now}`. It can be lowered, and not raised: `{asked}` is no lower.", verdict=""
        )
    RUNTIME.lower_ceiling(text, CONFIGURATION)
    administrator.hold_others()
    _apply_anew()
    return in_force()


def in_force() -> str:
    """Return the ceiling of this process as text; an empty one where there is none."""
    return "" if RUNTIME.ceiling is None else str(RUNTIME.ceiling)


def _apply_anew() -> None:
    """Apply what is in force or waits again, under the ceiling of now.

    Raises:
        TooLate: TensorFlow uses the GPUs, and keeps what it has; the other frameworks are held.
    """
    plan = RUNTIME.plan
    if current_stage() is Stage.READY:
        administrator.tell_others()
        raise TooLate(
            f"The ceiling is `{RUNTIME.ceiling}` now, for what this {here()} starts. TensorFlow is using the GPUs "
            "already: what it may take of them can no longer be changed. Restart, and say it in the first cell.",
            verdict="",
        )
    if plan is None:
        administrator.enforce_nearest()
    elif plan.judged:
        _lower(plan)
    else:  # it is checked when a framework is imported
        waits = fallback.waits(plan.asked, RUNTIME.ceiling)
        RUNTIME.apply(replace(waits, configured=plan.configured).with_others_of(plan))
    administrator.tell_others()


def _lower(plan: Plan) -> None:
    """Apply a plan again, lowered to the ceiling; where that cannot be, what an administrator has configured."""
    try:
        snapshot = administrator.look_well()
        process = other_processes.now().added_to(RUNTIME.observe(snapshot.gpus), snapshot)
        made = replace(make(NOTHING, snapshot, process), configured=plan.configured)
        made = made.hiding_all() if plan.hides_all else made
        administrator.apply_everywhere(made.with_others_of(plan))
        if made.needs_tensorflow and current_stage() is Stage.ABSENT:
            import_hook.call_at_import(administrator.at_import)
    except Refused as error:
        import_hook.warn(f"tfgpu_magic: {error}")
        administrator.enforce_nearest()
