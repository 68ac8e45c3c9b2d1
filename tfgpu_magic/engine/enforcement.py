"""Enforces plans: a user's now or at an import, and where nobody asks, what is configured, as far as it can be had.

`engine` makes the plans. What one has to hold for frameworks beside TensorFlow is in `every_framework`.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tfgpu_magic.engine import in_force, other_processes
from tfgpu_magic.errors import PolicyError, Refused, TooLate
from tfgpu_magic.frameworks import NAMES, import_hook
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.frameworks.tensorflow import devices
from tfgpu_magic.frameworks.tensorflow.devices import current_stage, is_frozen, is_importing, note_import
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.ground.process_kind import noun
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.machine.see import look, snapshot
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.decide import decide, least, renew, waits, with_others
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.policy import NOTHING, Policy
from tfgpu_magic.policy.process_state import GROWTH, ProcessState, Stage, showing
from tfgpu_magic.policy.requests.growth import GROWS


def enforce(plan: Plan) -> None:
    """Enforce a plan for TensorFlow, and for the frameworks beside it that it, or the one before it, is about.

    What only TensorFlow's own API can do waits for its import.

    Raises:
        Refused: a framework rejected it; everything is as it was.
    """
    before = RUNTIME.current.parts or ()
    parts = before if plan.parts is None else plan.parts
    with contextlib.ExitStack() as undo:
        if parts != before:
            undo.callback(lambda: list(every_framework().tell(before, parts)))
            for refused in every_framework().tell(parts, before):
                raise refused
        RUNTIME.apply(plan)  # TensorFlow last: it undoes its own
        undo.pop_all()
    if (plan.needs_tensorflow or plan.growth is not None) and current_stage() is Stage.ABSENT:
        import_hook.call_at_import(at_import)
    in_force.tell_at_exit()


def every_framework() -> Any:
    """Return the module on frameworks beside TensorFlow, which loads them all: most kernels need none of it."""
    from tfgpu_magic.engine import every_framework  # speed of a first `%tf_gpu` line

    return every_framework


class ConfiguredPolicy(NamedTuple):
    """A configured policy, in force until the user asks for another.

    Attributes:
        words: the policy's text as it was written.
        where: its source, as a phrase.
        policy: the policy.
        warn: shows a warning to the user, and to the machine's administrator.
    """

    words: str
    where: str
    policy: Policy
    warn: Callable[[str], None]


CEILING = "the ceiling"
"""The source of growth that nobody has asked for, and that is held under a ceiling."""

_configured: ConfiguredPolicy | None = None


def enforce_configured(text: str, where: str, warn: Callable[[str], None] = import_hook.warn) -> None:
    """Enforce a configured policy as far as possible: when a framework is imported, or now if TensorFlow is.

    Args:
        text: the policy's text.
        where: its source, as a phrase such as ``the configuration``.
        warn: shows what cannot be enforced; it is not called where everything can.
    """
    global _configured
    try:
        policy = parser.parse(text)
    except PolicyError as error:
        policy = GROWS
        warning = f"`{text}`, from {where}, is NOT in force: it is not a policy. `{policy}` is in force instead."
        warn(f"tfgpu_magic: {warning}\n{error}")
    _configured = ConfiguredPolicy(text, where, policy, warn)
    RUNTIME.source = where if where != CEILING else f"{CEILING} `{RUNTIME.ceiling}`"
    if RUNTIME.plan is None:
        RUNTIME.set_other_policy(policy.for_all)
    if current_stage() is Stage.ABSENT:
        enforce(replace(waits(policy, RUNTIME.ceiling), configured=True))
    else:
        enforce_nearest()


def enforce_nearest() -> None:
    """Enforce what can be had now of the configured policy; where there is none, growth under the ceiling."""
    if (configured := _configured) is None:
        enforce_configured(str(GROWS), CEILING)
        return
    nobody = configured.where == CEILING
    why: Message | str | None
    quoted = "Memory growth under the ceiling" if nobody else f"`{configured.words}`, from {configured.where},"
    head, held = f"tfgpu_magic: {quoted} ", True
    before = RUNTIME.current
    policy = before.settled if before.configured and before.judged else configured.policy  # its GPUs are chosen
    try:
        snapshot = look_well()
        if _said_since(before):
            return
        # Other users' kernels pick too, and are not seen: chance breaks ties, not of the user's own generator.
        chance = {str(gpu.uuid): random.SystemRandom().random() for gpu in snapshot.gpus}
        process = RUNTIME.observe(snapshot.gpus)._replace(claims=chance)
        with other_processes.decided(process, snapshot, partial(decide, policy, snapshot, strict=False)) as plan:
            why = plan.unmet
            if why:  # `%tf_gpu plan` and `status` show it too
                plan = replace(plan, notes=(msg("{policy} cannot be had in full.", policy=quoted), *plan.notes))
            elif policy is before.settled:
                plan = replace(plan, asked=before.asked)
            RUNTIME.apply(replace(plan, configured=True))
    except Exception as error:  # the GPUs cannot be queried, or TensorFlow rejected it for reasons of its own
        if isinstance(error, TooLate) and (process.stage is Stage.READY or process.forked):
            configured.warn(f"{head}is NOT in force.\n{error}")
            return
        if _said_since(before):
            return
        why = str(error) or type(error).__name__
        plan, held = _fall_back(policy, configured=True)
    if why:
        verdict = f"cannot be had in full. `{plan.asked}` is in force instead." if held else "is NOT in force."
        configured.warn(f"{head}{verdict}\n{why}")


def _said_since(plan: Plan) -> bool:
    """Return whether another thread has said a policy since this one was the current one: the GPUs were looked at."""
    return RUNTIME.current.asked != plan.asked


def _fall_back(policy: Policy, *, configured: bool) -> tuple[Plan, bool]:
    """Apply what can be enforced whatever the GPUs are: variables, and GPUs that only TensorFlow can still hide.

    Once CUDA has started, its list of GPUs is fixed.

    Returns:
        The plan, and whether all of it is in force.
    """
    plan = replace(least(policy, RUNTIME.ceiling, frozen=is_frozen()), configured=configured)
    RUNTIME.write(plan)
    try:
        if plan.show:
            devices.configure(plan.tensorflow)
    except Exception as error:  # TensorFlow's have no common root
        import_hook.warn(f"tfgpu_magic: GPUs that are to be hidden from TensorFlow are not: {error}")
        return plan, False
    return plan, True


def enforce_again() -> None:
    """Enforce what is in force or waits again, under the ceiling of now.

    Raises:
        TooLate: TensorFlow uses the GPUs, and keeps what it has; the other frameworks are held.
    """
    plan = RUNTIME.plan
    if current_stage() is Stage.READY:
        tell_others()
        raise TooLate(
            f"The ceiling is `{RUNTIME.ceiling}` now, for what this {noun()} starts. TensorFlow is using the GPUs "
            "already: what it may take of them can no longer be changed. Restart, and say it in the first cell.",
            verdict=None,
        )
    if plan is None:
        enforce_nearest()
    elif plan.judged:
        _lower()
    else:  # it is checked when a framework is imported
        RUNTIME.apply(replace(waits(plan.asked, RUNTIME.ceiling), configured=plan.configured))
    tell_others()


def _lower() -> None:
    """Enforce the plan again, lowered to the ceiling; where that cannot be, what an administrator has configured."""
    try:
        snapshot = look_well()
        plan = RUNTIME.current
        process = RUNTIME.observe(snapshot.gpus)
        with other_processes.decided(process, snapshot, partial(decide, NOTHING, snapshot)) as made:
            made = replace(made, configured=plan.configured)
            enforce(made.hiding_all() if plan.hidden else made)
    except Refused as error:
        import_hook.warn(f"tfgpu_magic: {error}")
        enforce_nearest()


def policy_of(plan: Plan) -> Policy:
    """Return the policy that a plan was made for; it is more than the plan does where that is only a fallback."""
    return _configured.policy if _configured is not None and plan.configured else plan.asked


def said_to_others(plan: Plan) -> Policy:
    """Return what a user asks of the frameworks beside TensorFlow; what is configured, a new process has by itself."""
    configured = NOTHING if _configured is None else _configured.policy.for_all
    return NOTHING if plan.asked_of_all == configured else plan.asked_of_all


def at_import() -> None:
    """Apply the plan that waits for TensorFlow's import."""
    note_import()  # CUDA contexts that are there now are others'
    RUNTIME.protect_settings()
    plan = RUNTIME.plan
    if plan is None or not plan.needs_tensorflow:
        return
    if plan.configured and _configured is not None:
        enforce_nearest()
        return
    try:
        if (without := devices.why_no_gpu(device.gpu.label for device in plan.devices)) is not None:
            import_hook.warn(f"tfgpu_magic: {without}")
            return
        devices.configure(plan.tensorflow)
    except Exception as error:  # TensorFlow's have no common root
        why = f"tfgpu_magic: `{plan.asked}` is NOT in force: {str(error) or type(error).__name__}"
        instead, held = _fall_back(GROWS, configured=False)
        if _configured is None and held:
            takes = "TensorFlow takes what it needs of the GPUs that it sees."
            takes = takes if instead.grows else str(instead.notes[0])
            import_hook.warn(f"{why}\n`{instead.asked}` is in force instead: {takes}")
        else:
            import_hook.warn(why)
        if _configured is not None:
            enforce_nearest()
        return
    now = renew(plan, look(), waits=current_stage() is not Stage.READY) if plan.devices else plan
    new_notes = [note for note in now.notes if note not in plan.notes]
    if import_hook.is_in_ipython() and (new_notes or not import_hook.QUIET):
        head = f"tfgpu_magic: `{plan.asked}` is in force from TensorFlow's first op on."
        import_hook.show("\n".join([head, *map(str, new_notes)]))
    elif new_notes:
        import_hook.warn("\n".join(map(str, new_notes)))


def hold_others() -> None:
    """Hold the frameworks beside TensorFlow to what is asked of them, and to the ceiling: now and at each import.

    Call it once TensorFlow's own plan is made.
    """
    hold_imports()
    for module in [module for module in NAMES if module in sys.modules][:1]:
        import_hook.call_at_import(tell_others, module)


def hold_imports() -> None:
    """Hold the frameworks beside TensorFlow to what is asked of them, and to the ceiling, whenever one is imported."""
    if "tensorflow" not in sys.modules:
        import_hook.call_at_import(at_import)
    for module in NAMES.keys() - sys.modules.keys():
        import_hook.call_at_import(tell_others, module)


def tell_others() -> None:
    """Apply to each framework beside TensorFlow the nearest possible policy under the ceiling.

    The GPUs of a configured policy are chosen then.
    """
    plan = RUNTIME.current
    try:
        waits_to_choose = plan.configured and not plan.judged and plan.asked.choice is not None
        if waits_to_choose and not is_importing():  # TensorFlow imports JAX; its own policy waits for its import
            enforce_nearest()
        if not (every_framework().needed() and (RUNTIME.current.asked_of_all.requests or RUNTIME.ceiling)):
            return
        snapshot = _looked()
        process = RUNTIME.observe(snapshot.gpus)
        plan = RUNTIME.current  # as it is now: another thread may have said a policy meanwhile
        process, before = process._replace(plan=plan, frameworks=every_framework().states(process)), plan.parts or ()

        def extended(process: ProcessState, _: object) -> Plan:
            return with_others(plan, snapshot, process)

        with other_processes.decided(process, snapshot, extended) as made:
            RUNTIME.write(made)
        for refused in list(every_framework().tell(made.parts or (), before)):  # each is told first
            import_hook.warn(f"tfgpu_magic: {refused.reason}")
        for part in made.parts or ():
            if part.unmet and part not in before:  # else it was said before
                import_hook.warn(f"tfgpu_magic: {part.unmet}")
    except Exception:
        hold_to_least()
        raise


def _looked() -> Snapshot:
    """Return a snapshot; where there is none, one that says why."""
    try:
        return look_well()
    except Exception as error:  # a framework that is imported is held all the same
        return Snapshot(time=0.0, error=str(error) or type(error).__name__)


def hold_to_least() -> None:
    """Hold every framework, whatever failed: under a ceiling it has no GPU, else memory grows that no limit takes."""
    plan = RUNTIME.current
    own = plan.tensorflow
    held = {**own.environment, **showing(())}
    if RUNTIME.ceiling is None:
        held = {**every_framework().growth(), **({GROWTH: "false"} if own.growth is False else {}), **own.environment}
    RUNTIME.write(plan.doing(environment=held))


def look_well() -> Snapshot:
    """Return a snapshot, and wait for a driver that is slow to start: no policy is checked without its figures."""
    return snapshot(slow=slow)  # a second later, what another notebook gave back would still count


def slow() -> None:
    """Print why nothing happens, if the user can see it below a cell."""
    if import_hook.is_in_ipython():
        import_hook.show("Waiting for the NVIDIA driver, which is slow to answer…")
