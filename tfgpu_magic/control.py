"""`plan`, `apply` and `status`: they connect `config`, `monitor` and `views`, which do the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic import administrator
from tfgpu_magic.administrator import look_well
from tfgpu_magic.config import fallback, import_hook, parser
from tfgpu_magic.config import plan as planning
from tfgpu_magic.config.flags import RESTART
from tfgpu_magic.config.plan import Plan
from tfgpu_magic.config.policy import NOTHING, Policy
from tfgpu_magic.config.process_state import ProcessState, Stage
from tfgpu_magic.config.runtime import RUNTIME, current_stage
from tfgpu_magic.host import host
from tfgpu_magic.monitor import claims
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.snapshot import Snapshot

if TYPE_CHECKING:
    from tfgpu_magic.views.status import Status


def plan(policy: str | Policy, *, see: Callable[[], Snapshot] = look_well) -> Plan:
    """Return what applying a policy would do, without doing it.

    Args:
        policy: words such as ``limit 2GiB``, or a policy made of them.
        see: returns a snapshot of the GPUs; by default one taken now.

    Returns:
        The plan, GPU by GPU.

    Raises:
        PolicyError: the words are no policy.
        Refused: the policy cannot be enforced here and now.
    """
    asked = parser.parse(policy) if isinstance(policy, str) else policy
    return _plan(asked, see(), claims.others())


def _plan(asked: Policy, snapshot: Snapshot, taken: Mapping[str, float]) -> Plan:
    process = _with_what_waits(replace(RUNTIME.observe(snapshot.gpus), claims=taken), snapshot)
    made = planning.make(asked, snapshot, process, lambda: administrator.names(snapshot))
    return replace(planning.renew(current(), snapshot, waits=False), in_force=True) if made.in_force else made


def _with_what_waits(process: ProcessState, snapshot: Snapshot) -> ProcessState:
    """Return the state with a policy that waits to be checked replaced by what can be enforced of it now."""
    if RUNTIME.plan is None or RUNTIME.plan.judged:
        return process
    now = fallback.foreseen(RUNTIME.plan, snapshot, process)
    return replace(process, asked=now.asked, settled=now.settled)


def apply(policy: str | Policy, *, see: Callable[[], Snapshot] = look_well) -> Plan:
    """Set this process's TensorFlow up, whole or not at all; before or after its import, before its first op.

    Where TensorFlow is not imported yet, what only its API can set waits for the import.

    Args:
        policy: words such as ``limit 2GiB``, or a policy made of them.
        see: returns a snapshot of the GPUs; by default one taken now.

    Returns:
        The plan that is in force, or waits.

    Raises:
        PolicyError: the words are no policy.
        Refused: the policy cannot be enforced; nothing was changed.
    """
    asked = parser.parse(policy) if isinstance(policy, str) else policy
    snapshot = see()
    waits = () if current().judged else current().asked
    with administrator.picking(Policy((*waits, *asked))) as taken:
        made = _plan(asked, snapshot, taken)
        if not made.in_force:
            RUNTIME.apply(made)
            if made.needs_tensorflow and current_stage() is Stage.ABSENT:
                import_hook.call_at_import(administrator.at_import)
    return made


def current() -> Plan:
    """Return the plan in force or waiting; where nothing was asked, one that does nothing."""
    return RUNTIME.plan or Plan(asked=NOTHING, settled=NOTHING)


def decided(snapshot: Snapshot | None = None) -> Plan:
    """Return the current plan; where it waits to be checked, what it would be with these GPUs, or with those now."""
    plan = current()
    if plan.judged:
        return plan
    snapshot = look() if snapshot is None else snapshot
    return fallback.foreseen(plan, snapshot, RUNTIME.observe(snapshot.gpus))


def inherited(snapshot: Snapshot | None = None) -> Policy:
    """Return the policy for a process that this one starts; on a machine without a GPU, it names none.

    Where nothing was asked, it is what holds the ceiling.
    """
    if RUNTIME.plan is None and RUNTIME.ceiling is not None:
        snapshot = look() if snapshot is None else snapshot
        return fallback.foreseen(fallback.waits(fallback.GROWS), snapshot, anew(snapshot)).settled
    plan = decided(snapshot)
    choice = plan.settled.choice
    if choice is None or not (plan.blind and (look() if snapshot is None else snapshot).absent):
        return plan.settled
    return plan.settled.without([choice])


def waiting() -> Plan:
    """Return the plan in force or waiting, with the GPUs as they are now, and a note if it no longer fits."""
    plan = decided()
    if not (plan.judged and plan.devices):
        return plan
    return planning.renew(plan, look(), waits=current_stage() is not Stage.READY)


def sketch(policy: str) -> Plan:
    """Return the plan for a program that starts anew, whatever this process does and whatever is free; for code.

    Raises:
        PolicyError: the words are no policy.
        Refused: they cannot be enforced together, or name what is not there.
    """
    snapshot = look_well()
    return planning.draft(parser.parse(policy), snapshot, _with_what_waits(anew(snapshot), snapshot))


def order() -> tuple[str, ...]:
    """Return the UUIDs of the GPUs in the order in which a new program lists them; none if the order is unknown."""
    return RUNTIME.observe(look().gpus).shown or ()


def foresee(policy: str) -> Plan:
    """Return the plan for this kernel after a restart, when what it holds now is free again.

    Raises:
        PolicyError: the words are no policy.
        Refused: they cannot be enforced in a new kernel either.
    """
    from tfgpu_magic.config import self_report  # only a restart needs it

    now = look_well()
    then = self_report.after_exit(now)
    process, intended = anew(now), administrator.policy_of(current())
    if intended is not current().asked or not current().judged:  # a configured policy, as far as it is possible by then
        possible, _ = fallback.nearest(intended, then, process)
        process = replace(process, asked=possible.asked, settled=possible.settled)
    restart = f" {RESTART}" if host() == "kernel" else ""
    return planning.make(parser.parse(policy), then, process, lambda: administrator.names(then), restart=restart)


names = administrator.names


def anew(snapshot: Snapshot) -> ProcessState:
    """Return the state of a new process with this one's policy, in which TensorFlow is not imported yet."""
    here = RUNTIME.observe(snapshot.gpus)
    return ProcessState(
        host=here.host,
        keras=here.keras,
        old=here.old,
        outside=here.outside,
        environment=here.outside,
        shown=here.given,
        given=here.given,
        asked=here.asked,
        settled=here.settled,
        ceiling=here.ceiling,
    )


def standing(plan: Plan, stage: Stage) -> str:
    """Return one sentence on what an applied plan does at this stage of TensorFlow."""
    if not plan.judged:
        return f"`{plan.asked}` waits for TensorFlow's import, and is checked against the GPUs again then."
    if not plan.asked.requests:
        takes = ", and it takes nearly all that is free of every GPU it sees" if plan.devices else ""
        return f"No policy is set: TensorFlow's own defaults hold{takes}."
    if plan.acts_on_nothing:
        return f"`{plan.asked}` has no effect here: TensorFlow sees no GPU."
    if plan.in_force:
        return f"`{plan.asked}` is in force already."
    if stage is Stage.READY:
        return f"`{plan.asked}` is in force."
    if stage is not Stage.ABSENT:
        return f"`{plan.asked}` is in force from TensorFlow's first op on."
    if plan.needs_tensorflow:
        return f"`{plan.asked}` waits for TensorFlow's import."
    return f"`{plan.asked}` is in force, also for programs that are started from here."


def status(timeout: float = 1.5) -> Status:
    """Return what each process holds of the GPUs, and what this process's TensorFlow does with them.

    Args:
        timeout: seconds to wait for the driver.

    Returns:
        The status, even where there is no driver or it hangs; then it says so. TensorFlow is not started.
    """
    from tfgpu_magic.config import self_report  # the modules that show a table are not needed to set TensorFlow up
    from tfgpu_magic.monitor import one_look
    from tfgpu_magic.views.status import shown

    return shown(one_look.table(self_report.report, timeout=timeout))
