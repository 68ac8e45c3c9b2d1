"""The way from words to TensorFlow: parse, look, plan, apply. Each step is another room's; here they meet."""

from __future__ import annotations

from dataclasses import replace

from tfgpu_magic.config import account, words
from tfgpu_magic.config import plan as planning
from tfgpu_magic.config.plan import Plan
from tfgpu_magic.config.policy import NOTHING, Policy
from tfgpu_magic.config.runtime import RUNTIME, current_stage
from tfgpu_magic.config.state import Stage
from tfgpu_magic.monitor import owners
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.snapshot import Snapshot
from tfgpu_magic.views.status import Status
from tfgpu_magic.views.status import status as show


def plan(policy: str | Policy) -> Plan:
    """Say what applying a policy would do; nothing is done.

    Args:
        policy: words such as ``limit 2GiB``, or a policy made of them.

    Returns:
        The plan, GPU by GPU.

    Raises:
        PolicyError: the words are no policy.
        Refused: the policy cannot be enforced here and now.
    """
    asked = words.parse(policy) if isinstance(policy, str) else policy
    snapshot = look()
    made = planning.make(asked, snapshot, RUNTIME.observe(snapshot.gpus), _names(snapshot))
    return replace(current(), in_force=True) if made.in_force else made


def apply(policy: str | Policy) -> Plan:
    """Set this process's TensorFlow up, whole or not at all; before or after its import, before its first op.

    Where TensorFlow is not imported yet, what only its API can set waits for the import.

    Args:
        policy: words such as ``limit 2GiB``, or a policy made of them.

    Returns:
        The plan that is in force, or waits.

    Raises:
        PolicyError: the words are no policy.
        Refused: the policy cannot be enforced; nothing was changed.
    """
    made = plan(policy)
    if not made.in_force:
        RUNTIME.apply(made)
        if made.needs_tensorflow and current_stage() is Stage.ABSENT:
            from tfgpu_magic.config import onimport  # its library costs milliseconds, and few words need it

            onimport.hold()
    return made


def current() -> Plan:
    """The plan in force or waiting; where nothing was asked, one that does nothing."""
    return RUNTIME.plan or Plan(asked=NOTHING, settled=NOTHING)


def standing(plan: Plan) -> str:
    """How an applied plan stands, in one sentence."""
    if not plan.asked.requests:
        return "Nothing is asked: TensorFlow's own defaults hold, and it will take all of every GPU it sees."
    if plan.in_force:
        return f"`{plan.asked}` is in force already."
    if current_stage() is not Stage.ABSENT:
        return f"`{plan.asked}` is in force from TensorFlow's first op on."
    if plan.needs_tensorflow:
        return f"`{plan.asked}` waits for TensorFlow's import."
    return f"`{plan.asked}` is in force, also for programs that are started from here."


def status(timeout: float = 1.5) -> Status:
    """Look at the GPUs: who holds what, and what this process's TensorFlow does with them.

    Args:
        timeout: seconds to wait for the driver.

    Returns:
        The status, even where there is no driver or it hangs: then it says so. TensorFlow is not woken.
    """
    return show(account.report, timeout=timeout)


def _names(snapshot: Snapshot) -> dict[int, str]:
    pids = {process.pid for process in snapshot.processes}
    return {pid: owner.text for pid, owner in owners.Owners().find(pids).items()}
