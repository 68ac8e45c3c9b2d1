"""The policy from the configuration: checked when TensorFlow is imported, or replaced by the nearest safe one."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfgpu_magic import others
from tfgpu_magic.config import fallback, import_hook, parser
from tfgpu_magic.config.plan import Plan, in_words, renew
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.promises import Promise
from tfgpu_magic.config.runtime import RUNTIME, current_stage, frozen
from tfgpu_magic.errors import PolicyError, TooLate
from tfgpu_magic.host import here
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
        RUNTIME.fall_back(fallback.least(fallback.GROWS))
        if _configured is None:
            instead = "is in force instead: TensorFlow takes what it needs of the GPUs that it sees."
            import_hook.warn(f"{why}\n`{fallback.GROWS}` {instead}")
        else:
            import_hook.warn(why)
            _enforce_now(_configured)
        return
    now = renew(plan, look(), waits=current_stage() is not Stage.READY) if plan.devices else plan
    new_notes = [note for note in now.notes if note not in plan.notes]
    if import_hook.in_a_cell():
        import_hook.show("\n".join([f"tfgpu_magic: `{plan.asked}` is in force.", *new_notes]))
    elif new_notes:
        import_hook.warn("\n".join(new_notes))


def _divide(plan: Plan) -> None:
    """Fix the parts of a plan that waited for TensorFlow's import, as things are now; say how large they are."""
    snapshot = look_well()
    with others.settling(plan.settled) as beside:
        process = beside.beside(RUNTIME.observe(snapshot.gpus), snapshot)
        now, why = fallback.nearest(plan.settled, snapshot, process, lambda: names(snapshot))
        now = now if why else replace(now, asked=plan.asked)
        RUNTIME.apply(now)
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
    head = f"tfgpu_magic: {quoted} "
    try:
        snapshot = look_well()
        with others.settling(configured.policy) as beside:
            process = beside.beside(RUNTIME.observe(snapshot.gpus), snapshot)
            process = replace(process, claims=_with_tie_breakers(process.claims, snapshot))
            plan, why = fallback.nearest(configured.policy, snapshot, process, lambda: names(snapshot))
            if why:  # `%tf_gpu plan` and `status` show it too
                plan = replace(plan, notes=(f"{quoted} cannot be had in full.", *plan.notes))
            RUNTIME.apply(plan)
    except TooLate as error:
        plan, why = _least(configured.policy), str(error)
        if process.stage is Stage.READY or process.forked:
            configured.warn(f"{head}is NOT in force.\n{error}")
            return
        RUNTIME.fall_back(plan)
    except Exception as error:  # the GPUs cannot be queried, or TensorFlow rejected it for reasons of its own
        plan, why = _least(configured.policy), str(error) or type(error).__name__
        RUNTIME.fall_back(plan)
    if why:
        _fallback = plan
        configured.warn(f"{head}cannot be had in full. `{plan.asked}` is in force instead.\n{why}")


def _least(policy: Policy) -> Plan:
    """Return what can be enforced whatever the GPUs are; once CUDA has started, its list of GPUs is fixed."""
    return fallback.least(fallback.GROWS if frozen() else policy)


def _with_tie_breakers(taken: Mapping[str, float], snapshot: Snapshot) -> dict[str, float]:
    """Return the claims with a random tie-breaker for each GPU: other users' kernels pick too, and are not seen."""
    generator = random.SystemRandom()  # the state of the user's own generator is to stay as it is
    return {str(gpu.uuid): taken.get(str(gpu.uuid), 0.0) + generator.random() for gpu in snapshot.gpus}
