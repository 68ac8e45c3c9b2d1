"""Plan, apply and status: where the rooms meet. Each step is another room's."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.config import onimport, words
from tfgpu_magic.config import plan as planning
from tfgpu_magic.config.plan import Plan
from tfgpu_magic.config.policy import NOTHING, Policy
from tfgpu_magic.config.runtime import RUNTIME, current_stage
from tfgpu_magic.config.state import Kernel, Stage
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.snapshot import Snapshot

if TYPE_CHECKING:
    from tfgpu_magic.views.status import Status


def plan(policy: str | Policy, *, see: Callable[[], Snapshot] = look) -> Plan:
    """Say what applying a policy would do; nothing is done.

    Args:
        policy: words such as ``limit 2GiB``, or a policy made of them.
        see: gives the GPUs as they are; by default a look now.

    Returns:
        The plan, GPU by GPU.

    Raises:
        PolicyError: the words are no policy.
        Refused: the policy cannot be enforced here and now.
    """
    asked = words.parse(policy) if isinstance(policy, str) else policy
    snapshot = see()
    made = planning.make(asked, snapshot, RUNTIME.observe(snapshot.gpus), lambda: names(snapshot))
    return replace(planning.renew(current(), snapshot, waits=False), in_force=True) if made.in_force else made


def apply(policy: str | Policy, *, see: Callable[[], Snapshot] = look) -> Plan:
    """Set this process's TensorFlow up, whole or not at all; before or after its import, before its first op.

    Where TensorFlow is not imported yet, what only its API can set waits for the import.

    Args:
        policy: words such as ``limit 2GiB``, or a policy made of them.
        see: gives the GPUs as they are; by default a look now.

    Returns:
        The plan that is in force, or waits.

    Raises:
        PolicyError: the words are no policy.
        Refused: the policy cannot be enforced; nothing was changed.
    """
    made = plan(policy, see=see)
    if not made.in_force:
        RUNTIME.apply(made)
        if made.needs_tensorflow and current_stage() is Stage.ABSENT:
            onimport.hold(waiting)
    return made


def current() -> Plan:
    """The plan in force or waiting; where nothing was asked, one that does nothing."""
    return RUNTIME.plan or Plan(asked=NOTHING, settled=NOTHING)


def waiting() -> Plan:
    """The plan in force or waiting, with the GPUs as they are now, and a note if it no longer fits."""
    plan = current()
    return planning.renew(plan, look(), waits=current_stage() is not Stage.READY) if plan.devices else plan


def sketch(policy: str) -> Plan:
    """The plan for a program that starts from here: for code, whatever this process does and whatever is free.

    Raises:
        PolicyError: the words are no policy.
        Refused: they cannot be enforced together, or name what is not there.
    """
    snapshot = look()
    return planning.draft(words.parse(policy), snapshot, anew(snapshot))


def foresee(policy: str) -> Plan:
    """The plan for this kernel after a restart, when what it holds now is free again.

    Raises:
        PolicyError: the words are no policy.
        Refused: they cannot be enforced in a new kernel either.
    """
    now = look()
    own: dict[str, int] = {}
    for process in now.processes:
        if process.pid == os.getpid():
            own[process.gpu] = own.get(process.gpu, 0) + (process.held or 0)
    gpus = tuple(
        gpu if gpu.free is None else replace(gpu, free=gpu.free + own.get(gpu.label, 0), used=None) for gpu in now.gpus
    )
    processes = tuple(process for process in now.processes if process.pid != os.getpid())
    then = replace(now, gpus=gpus, processes=processes)
    return planning.make(words.parse(policy), then, anew(now), lambda: names(then))


def anew(snapshot: Snapshot) -> Kernel:
    """A process that starts from here, in which nothing has happened yet."""
    here = RUNTIME.observe(snapshot.gpus)
    return Kernel(
        outside=here.outside,
        environment=here.outside,
        shown=here.given,
        given=here.given,
        asked=here.asked,
        settled=here.settled,
    )


def standing(plan: Plan) -> str:
    """How an applied plan stands, in one sentence."""
    if not plan.asked.requests:
        takes = ", and it takes all of every GPU it sees" if plan.devices else ""
        return f"Nothing is asked: TensorFlow's own defaults hold{takes}."
    if plan.growth is not None and not plan.devices and plan.cpus is None:
        return f"`{plan.asked}` has no GPU here to act on."
    if plan.in_force:
        return f"`{plan.asked}` is in force already."
    if current_stage() is Stage.READY:
        return f"`{plan.asked}` is in force."
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
    from tfgpu_magic.config import account  # what shows a table is not needed to set TensorFlow up
    from tfgpu_magic.views import status as views

    return views.status(account.report, timeout=timeout)


def names(snapshot: Snapshot) -> dict[int, str]:
    """Who is behind each pid, in words."""
    from tfgpu_magic.monitor import bounded, owners  # psutil is slow to import, and only a refusal names anyone

    pids = {process.pid for process in snapshot.processes}
    found = bounded.within(1.5, lambda: owners.Owners().find(pids)) or {}
    return {pid: owner.text for pid, owner in found.items()}
