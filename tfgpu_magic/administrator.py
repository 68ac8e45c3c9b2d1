"""A policy that no person says here: it is judged when TensorFlow is imported, and falls to the nearest safe one."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tfgpu_magic.config import fallback, import_hook, parser
from tfgpu_magic.config.plan import Plan, renew
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.runtime import RUNTIME, current_stage, frozen
from tfgpu_magic.errors import PolicyError, TooLate
from tfgpu_magic.host import here
from tfgpu_magic.monitor import claims
from tfgpu_magic.monitor.look import LOOK_TIMEOUT, look
from tfgpu_magic.monitor.snapshot import Snapshot
from tfgpu_magic.monitor.sources import makers


@dataclass(frozen=True, slots=True)
class Standing:
    """A policy that stands until somebody says another.

    Attributes:
        words: the policy as it was written.
        where: where it is from, in words.
        policy: what it is.
        warn: tells the person, and whoever looks after the machine.
    """

    words: str
    where: str
    policy: Policy
    warn: Callable[[str], None]


_standing: Standing | None = None
_fallen: Plan | None = None
"""What holds instead of it, where it cannot be had in full."""


def stand(text: str, where: str, warn: Callable[[str], None] = import_hook.warn) -> None:
    """Have a policy hold in this process: what can be had of it, when TensorFlow is imported, or now where it is.

    Args:
        text: the policy's words.
        where: where they are from, in words, such as ``the configuration``.
        warn: tells what cannot be had; nothing is told where all can.
    """
    global _standing
    try:
        policy = parser.parse(text)
    except PolicyError as error:
        policy = fallback.GROWS
        told = f"`{text}`, from {where}, is NOT in force: it is not a policy. `{policy}` is in force instead."
        warn(f"tfgpu_magic: {told}\n{error}")
    _standing = Standing(text, where, policy, warn)
    if current_stage() is Stage.ABSENT:
        RUNTIME.apply(fallback.waits(policy))
        import_hook.hold(at_import)
    else:
        _judge(_standing)


def said(plan: Plan) -> Policy:
    """Return what was said for a plan, which is more than it does where an administrator's could not be had in full."""
    return _standing.policy if _standing is not None and plan is _fallen else plan.asked


def at_import() -> None:
    """Do what waits for TensorFlow's import."""
    plan = RUNTIME.plan
    if plan is None or not plan.needs_tensorflow:
        return
    if not plan.judged and _standing is not None:
        _judge(_standing)
        return
    try:
        RUNTIME.tell(plan)
    except Exception as error:  # TensorFlow's have no common root
        why = f"tfgpu_magic: `{plan.asked}` is NOT in force: {error or type(error).__name__}"
        RUNTIME.fall(fallback.least(fallback.GROWS))
        if _standing is None:
            instead = "is in force instead: TensorFlow takes what it needs of the GPUs that it sees."
            import_hook.warn(f"{why}\n`{fallback.GROWS}` {instead}")
        else:
            import_hook.warn(why)
            _judge(_standing)
        return
    now = renew(plan, look(), waits=current_stage() is not Stage.READY) if plan.devices else plan
    news = [note for note in now.notes if note not in plan.notes]
    if import_hook.in_a_cell():
        import_hook.say("\n".join([f"tfgpu_magic: `{plan.asked}` is in force.", *news]))
    elif news:
        import_hook.warn("\n".join(news))


def look_well() -> Snapshot:
    """Look at the GPUs, and wait for a driver that is slow to start: no policy is judged without."""
    return look(LOOK_TIMEOUT, slow=slow)


def slow() -> None:
    """Say why nothing happens, where it is read."""
    if import_hook.in_a_cell():
        import_hook.say(f"Waiting for the {makers()} driver, which is slow to answer…")


def picking(policy: Policy) -> contextlib.AbstractContextManager[Mapping[str, float]]:
    """Give what other kernels have picked, where the policy picks; while the block runs, none of them picks."""
    return claims.picking() if _picks(policy) else contextlib.nullcontext({})


def names(snapshot: Snapshot) -> dict[int, str]:
    """Who is behind each pid, in words, as the table names them."""
    from tfgpu_magic.monitor import one_look  # psutil is slow to import, and only a refusal names anyone

    found = one_look.owners({process.pid for process in snapshot.processes})
    return {
        pid: owner.text.replace("this notebook", f"this {here()}", 1) if owner.who == "this" else owner.text
        for pid, owner in found.items()
    }


def _judge(standing: Standing) -> None:
    """Put in force what can be had of the policy as things are now."""
    global _fallen
    whence = f"`{standing.words}`, from {standing.where},"
    head = f"tfgpu_magic: {whence} "
    try:
        snapshot = look_well()
        with picking(standing.policy) as taken:
            process = replace(RUNTIME.observe(snapshot.gpus), claims=_with_lots(taken, snapshot))
            plan, why = fallback.nearest(standing.policy, snapshot, process, lambda: names(snapshot))
            if why:  # what is in force says so too, where it is asked for
                plan = replace(plan, notes=(f"{whence} cannot be had in full.", *plan.notes))
            RUNTIME.apply(plan)
    except TooLate as error:
        plan, why = _least(standing.policy), str(error)
        if process.stage is Stage.READY or process.forked:
            standing.warn(f"{head}is NOT in force.\n{error}")
            return
        RUNTIME.fall(plan)
    except Exception as error:  # the GPUs cannot be asked, or TensorFlow did not take it, for reasons of its own
        plan, why = _least(standing.policy), str(error) or type(error).__name__
        RUNTIME.fall(plan)
    if why:
        _fallen = plan
        standing.warn(f"{head}cannot be had in full. `{plan.asked}` is in force instead.\n{why}")


def _least(policy: Policy) -> Plan:
    """What holds of the policy whatever the GPUs are; CUDA can be told no others once it has started."""
    return fallback.least(fallback.GROWS if frozen() else policy)


def _picks(policy: Policy) -> bool:
    return policy.choice is not None and policy.choice.picks


def _with_lots(taken: Mapping[str, float], snapshot: Snapshot) -> dict[str, float]:
    """The claims, with a lot for each GPU: kernels of other users pick too, and cannot be seen."""
    lot = random.SystemRandom()  # the person's own numbers are to stay as they are
    return {str(gpu.uuid): taken.get(str(gpu.uuid), 0.0) + lot.random() for gpu in snapshot.gpus}
