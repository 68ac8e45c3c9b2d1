"""The policy and the ceiling from the configuration; at TensorFlow's import, the nearest that can be had is applied."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

from tfgpu_magic import other_processes
from tfgpu_magic.config import fallback, import_hook, parser
from tfgpu_magic.config.frameworks import NAMES
from tfgpu_magic.config.plan import Plan, in_words, make, renew
from tfgpu_magic.config.policy import NOTHING, Policy
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.promises import Promise
from tfgpu_magic.config.runtime import RUNTIME, current_stage, frozen, quieten
from tfgpu_magic.errors import PolicyError, Refused, TooLate
from tfgpu_magic.host import here, host
from tfgpu_magic.monitor.look import LOOK_TIMEOUT, look
from tfgpu_magic.monitor.snapshot import Snapshot
from tfgpu_magic.monitor.sources import makers


@dataclass(frozen=True, slots=True)
class ConfiguredPolicy:
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


CONFIGURATION = "the configuration"
"""The source of what `c.TfGpuMagics` says, as a phrase."""

_configured: ConfiguredPolicy | None = None
_fallback: Plan | None = None
"""The plan in force instead of the configured policy, where that cannot be enforced in full."""


def enforce(text: str, where: str, warn: Callable[[str], None] = import_hook.warn) -> None:
    """Enforce a policy in this process as far as possible: when TensorFlow is imported, or now if it is already.

    Args:
        text: the policy's text.
        where: its source, as a phrase such as ``the configuration``.
        warn: shows what cannot be enforced; it is not called where everything can.
    """
    global _configured
    try:
        policy = parser.parse(text)
    except PolicyError as error:
        policy = fallback.GROWS
        warning = f"`{text}`, from {where}, is NOT in force: it is not a policy. `{policy}` is in force instead."
        warn(f"tfgpu_magic: {warning}\n{error}")
    _configured = ConfiguredPolicy(text, where, policy, warn)
    if current_stage() is Stage.ABSENT:
        RUNTIME.apply(fallback.waits(policy))
        import_hook.call_at_import(at_import)
    else:
        _enforce_now(_configured)


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
    from tfgpu_magic.config import ceiling  # few processes have one

    now, held = RUNTIME.ceiling, in_force()
    if text.strip() == held:
        return held
    if now is not None and not text.strip():
        raise Refused(f"The ceiling here is `{now}`. It can be lowered, and not raised or removed.")
    asked = ceiling.read(text)
    if now is not None and now.lower_of(asked).amounts == now.amounts:
        if asked.amounts == now.amounts:
            return held
        raise Refused(f"The ceiling here is `{now}`. It can be lowered, and not raised: `{asked}` is no lower.")
    RUNTIME.lower_ceiling(text, CONFIGURATION)
    _apply_anew()
    hold_others()
    return str(RUNTIME.ceiling)


def has_policy() -> bool:
    """Tell whether a policy is in force or waits in this process."""
    return RUNTIME.plan is not None


def in_force() -> str:
    """Return the ceiling of this process as text; an empty one where there is none."""
    return "" if RUNTIME.ceiling is None else str(RUNTIME.ceiling)


def _apply_anew() -> None:
    """Apply what is in force or waits again, under the ceiling of now."""
    if current_stage() is Stage.READY:
        raise TooLate(
            f"The ceiling is `{RUNTIME.ceiling}` now, for what this {here()} starts. TensorFlow is using the GPUs "
            "already: what it may take of them can no longer be changed. Restart, and say it in the first cell."
        )
    plan = RUNTIME.plan
    if plan is not None and not plan.judged:
        _tell_others()
        return  # it is checked when TensorFlow is imported
    try:
        if plan is not None:
            snapshot = look_well()
            process = RUNTIME.observe(snapshot.gpus)
            made = everywhere().plan(
                NOTHING, "tensorflow", lambda asked, here: make(asked, snapshot, here), plan, snapshot, process
            )
            apply_everywhere(made)
            _warn_of(made, plan)
            if made.needs_tensorflow and current_stage() is Stage.ABSENT:
                import_hook.call_at_import(at_import)
            return
    except Refused as error:
        import_hook.warn(f"tfgpu_magic: {error}")
    enforce(str(fallback.GROWS), "the ceiling")


def hold_others(told: Collection[str] = ()) -> None:
    """Hold the frameworks beside TensorFlow to what is asked of them and the ceiling, as soon as they are imported.

    Call it once TensorFlow's own plan is made: a framework that is imported already is told at once.

    Args:
        told: the names of those that have been told.
    """
    for module, name in NAMES.items():
        if module != "tensorflow" and name not in told:
            import_hook.call_at_import(_tell_others, module)


def _tell_others() -> None:
    """Apply the ceiling to the frameworks beside TensorFlow, and the configured policy until a user says another."""
    plan = RUNTIME.plan or Plan(asked=NOTHING, settled=NOTHING)
    others = asked_of_others()
    if not (others.requests or RUNTIME.ceiling):
        return
    asked = NOTHING if plan.others.requests else others
    snapshot = look_well()
    process = other_processes.now().beside(RUNTIME.observe(snapshot.gpus), snapshot)
    made = everywhere().plan(asked, "others", lambda *_: plan, plan, snapshot, process)
    apply_everywhere(made)
    _warn_of(made, plan)


def _warn_of(plan: Plan, before: Plan) -> None:
    """Warn of the frameworks that stay as they were, where that was not said before."""
    for part in plan.frameworks:
        if part.unmet and part not in before.frameworks:
            import_hook.warn(f"tfgpu_magic: {part.unmet}")


def asked_of_others() -> Policy:
    """Return what the frameworks beside TensorFlow are asked: of the configured policy, until a user says another."""
    plan = RUNTIME.plan or Plan(asked=NOTHING, settled=NOTHING)
    configured = _configured is not None and (
        not plan.judged or plan is _fallback or plan.asked.asks_the_same(_configured.policy)
    )
    if plan.others.requests or _configured is None or not configured:
        return plan.others
    return Policy(tuple(one for one in _configured.policy.memory if one.of_any_framework))


def apply_everywhere(plan: Plan) -> None:
    """Apply a plan to TensorFlow, and to the frameworks beside it that it, or the one before it, is about.

    Raises:
        Refused: a framework rejected it; everything is as it was.
    """
    if plan.frameworks or (RUNTIME.plan is not None and RUNTIME.plan.frameworks):
        everywhere().apply(plan)
    else:
        RUNTIME.apply(plan)


def everywhere() -> ModuleType:
    """Return what connects the frameworks; most kernels have TensorFlow alone, and need none of it."""
    from tfgpu_magic import everywhere as module  # speed of a first `%tf_gpu` line

    return module


def be_quiet(*, on: bool) -> None:
    """Say nothing at TensorFlow's import where all is well; or say what is in force."""
    import_hook.QUIET = on


def quieten_tensorflow(*, on: bool) -> None:
    """Keep TensorFlow's own log out of cells, but for errors; or do not."""
    from tfgpu_magic.config import import_log  # few configurations ask for it

    quieten(on=on)
    if on and host() == "kernel":  # in a terminal, what a crash says last is worth more
        import_log.keep_out()
    else:
        import_log.let_in()


def policy_of(plan: Plan) -> Policy:
    """Return the policy that a plan was made for; it is more than the plan does where that is only a fallback."""
    return _configured.policy if _configured is not None and plan is _fallback else plan.asked


def at_import() -> None:
    """Apply the plan that waits for TensorFlow's import."""
    plan = RUNTIME.plan
    if plan is None or not plan.needs_tensorflow:
        return
    if not plan.judged and _configured is not None:
        _enforce_now(_configured)
        return
    try:
        if plan.divides:
            _divide(plan)
            return
        RUNTIME.configure(plan)
    except Exception as error:  # TensorFlow's have no common root
        why = f"tfgpu_magic: `{plan.asked}` is NOT in force: {error or type(error).__name__}"
        least = _least(fallback.GROWS)
        held = _fall_back(least)
        if _configured is None and held:
            instead = "TensorFlow takes what it needs of the GPUs that it sees." if least.grows else least.notes[0]
            import_hook.warn(f"{why}\n`{least.asked}` is in force instead: {instead}")
        else:
            import_hook.warn(why)
        if _configured is not None:
            _enforce_now(_configured)
        return
    now = renew(plan, look(), waits=current_stage() is not Stage.READY) if plan.devices else plan
    new_notes = [note for note in now.notes if note not in plan.notes]
    if import_hook.in_a_cell() and (new_notes or not import_hook.QUIET):
        import_hook.show("\n".join([f"tfgpu_magic: `{plan.asked}` is in force.", *new_notes]))
    elif new_notes:
        import_hook.warn("\n".join(new_notes))


def _divide(plan: Plan) -> None:
    """Fix the parts of a plan that waited for TensorFlow's import, as things are now; say how large they are."""
    snapshot = look_well()
    with other_processes.settling(plan.settled) as beside:
        process = beside.beside(RUNTIME.observe(snapshot.gpus), snapshot)
        now, why = fallback.nearest(plan.settled, snapshot, process, lambda: names(snapshot))
        now = now if why else replace(now, asked=plan.asked)
        RUNTIME.apply(now.beside(plan))
    head = f"tfgpu_magic: `{plan.asked}`"
    if why:
        import_hook.warn(f"{head} cannot be had in full. `{now.asked}` is in force instead.\n{why}")
    elif import_hook.in_a_cell():
        parts = [f"{in_words(device.limits, grows=now.grows)} on GPU {device.gpu.label}" for device in now.devices]
        import_hook.show(f"{head} is in force: {', '.join(parts)}.")


def look_well() -> Snapshot:
    """Return a snapshot, and wait for a driver that is slow to start: no policy is checked without its figures."""
    return look(LOOK_TIMEOUT, slow=slow)


def slow() -> None:
    """Print why nothing happens, if the user can see it below a cell."""
    if import_hook.in_a_cell():
        import_hook.show(f"Waiting for the {makers()} driver, which is slow to answer…")


def names(snapshot: Snapshot, promises: Sequence[Promise] = ()) -> dict[int, str]:
    """Return the name of each process by its pid, as the table shows it.

    Args:
        snapshot: the GPUs with the processes that hold memory.
        promises: those of other processes, which need hold none.
    """
    from tfgpu_magic.monitor import one_look  # psutil is slow to import, and only a refusal or a note names processes

    holding = {process.pid for process in snapshot.processes}
    waiting = {promise.pid for promise in promises if promise.pid is not None} - holding
    found = {**one_look.owners(holding), **(one_look.reporting(waiting) if waiting else {})}
    return {
        pid: owner.text.replace("this notebook", f"this {here()}", 1) if owner.who == "this" else owner.text
        for pid, owner in found.items()
    }


def _enforce_now(configured: ConfiguredPolicy) -> None:
    """Enforce as much of the policy as is possible now."""
    global _fallback
    quoted = f"`{configured.words}`, from {configured.where},"
    head, held = f"tfgpu_magic: {quoted} ", True
    try:
        snapshot = look_well()
        with other_processes.settling(configured.policy) as beside:
            process = beside.beside(RUNTIME.observe(snapshot.gpus), snapshot)
            process = replace(process, claims=_with_tie_breakers(process.claims, snapshot))
            plan, why = fallback.nearest(configured.policy, snapshot, process, lambda: names(snapshot))
            if why:  # `%tf_gpu plan` and `status` show it too
                plan = replace(plan, notes=(f"{quoted} cannot be had in full.", *plan.notes))
            RUNTIME.apply(plan.beside(RUNTIME.plan))
    except TooLate as error:
        plan, why = _least(configured.policy), str(error)
        if process.stage is Stage.READY or process.forked:
            configured.warn(f"{head}is NOT in force.\n{error}")
            return
        held = _fall_back(plan)
    except Exception as error:  # the GPUs cannot be queried, or TensorFlow rejected it for reasons of its own
        plan, why = _least(configured.policy), str(error) or type(error).__name__
        held = _fall_back(plan)
    if why:
        _fallback = plan
        verdict = f"cannot be had in full. `{plan.asked}` is in force instead." if held else "is NOT in force."
        configured.warn(f"{head}{verdict}\n{why}")


def _least(policy: Policy) -> Plan:
    """Return what can be enforced whatever the GPUs are; once CUDA has started, its list of GPUs is fixed."""
    return fallback.least(policy, RUNTIME.ceiling, frozen=frozen())


def _fall_back(plan: Plan) -> bool:
    """Apply the least plan: its variables, and GPUs that only TensorFlow can still hide; tell whether all of it is."""
    RUNTIME.fall_back(plan)
    if plan.show:
        try:
            RUNTIME.configure(plan)
        except Exception as error:  # TensorFlow's have no common root
            import_hook.warn(f"tfgpu_magic: GPUs that are to be hidden from TensorFlow are not: {error}")
            return False
    return True


def _with_tie_breakers(taken: Mapping[str, float], snapshot: Snapshot) -> dict[str, float]:
    """Return the claims with a random tie-breaker for each GPU: other users' kernels pick too, and are not seen."""
    generator = random.SystemRandom()  # the state of the user's own generator is to stay as it is
    return {str(gpu.uuid): taken.get(str(gpu.uuid), 0.0) + generator.random() for gpu in snapshot.gpus}
