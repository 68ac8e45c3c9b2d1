"""The frameworks beside TensorFlow in this process: as a plan needs them, and what they are told; and sentences."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.registry import Framework
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.message import format_list, msg
from tfgpu_magic.policy.plan import FrameworkPlan, FrameworkState, Plan
from tfgpu_magic.policy.policy import Memory, Policy
from tfgpu_magic.policy.process_state import ProcessState, Stage


def states(process: ProcessState) -> tuple[FrameworkState, ...]:
    """Return the frameworks that are installed and can be told what they may take: as they are, or in a new process."""
    imported, environment = registry.imported_names(), RUNTIME.environment_for_children()
    return tuple(
        FrameworkState(
            name=one.name,
            plan=one.plan,
            environment=environment,
            version=one.version(),
            held={} if process.anew else _held(one),
            allocator="" if process.anew else one.allocator(),
            grows_by=one.grows_by,
            imported=one.name in imported,
            on_cpu=one.is_cpu_only(),
            fixed=_is_fixed(one),
            since=one.since,
        )
        for one in registry.limitable()
    )


def _held(framework: Framework) -> Mapping[str, int]:
    with contextlib.suppress(Exception):  # an allocator of the user's tells no figures; the other frameworks are held
        return framework.held()
    return {}


def needed() -> bool:
    """Return whether a framework beside TensorFlow is installed."""
    return bool(registry.limitable())


def growth() -> dict[str, str]:
    """Return the variables with which the memory of every framework grows."""
    return {name: value for one in registry.FRAMEWORKS for name, value in one.grows_by.items()}


def _is_fixed(framework: Framework) -> bool:
    """Return whether a framework cannot be told anything any more."""
    return framework.fixed_once_used and framework.stage() in (Stage.READY, Stage.LISTED)


def tell(parts: Sequence[FrameworkPlan], before: Sequence[FrameworkPlan]) -> Iterator[Refused]:
    """Set in the imported frameworks what variables no longer set, if it differs from before.

    It gives the error of each that rejects it.
    """
    now, then = ({part.framework: part for part in some} for some in (parts, before))
    for framework in registry.limitable():
        part = now.get(framework.name, FrameworkPlan(framework=framework.name))
        if part.tells_the_same(then.get(framework.name)):
            continue
        try:
            framework.configure(part)
        except Exception as error:  # a framework's errors have no common root
            refused = Refused(msg("{name} did not take it: {error}", name=framework.name, error=error))
            refused.__cause__ = error
            yield refused


def standing(plan: Plan) -> str:
    """Return one sentence on what an applied plan does for every framework."""
    tensorflow = [TENSORFLOW] if registry.installed("tensorflow") else []
    there = [*([] if plan.hidden else tensorflow), *(part.framework for part in plan.parts or ())]
    names = format_list(there) if there else "every framework"
    if not plan.asked_of_all.requests and not plan.asked.requests:
        return f"No policy is set: the defaults of {names} hold."
    asked = of_all(plan.asked, plan.asked_of_all)
    if plan.in_force:
        return f"`{asked}` is in force already."
    return f"`{asked}` holds for {names}, from first use on."


def not_inherited(plan: Plan) -> list[str]:
    """Return the names of the frameworks whose limits no variable says to the programs that this process starts."""
    tensorflow = [TENSORFLOW] if registry.installed("tensorflow") else []
    return tensorflow + [part.framework for part in plan.parts or () if part.limits and not part.environment]


def of_all(own: Policy, others: Policy) -> Policy:
    """Return what is asked of TensorFlow with what is asked of the others in place of what its memory is asked."""
    rest = tuple(request for request in own if not isinstance(request, Memory))
    return Policy((*rest, *others)) if others.requests else own


def left_out(plan: Plan) -> str:
    """Return a sentence on the installed frameworks that a policy for TensorFlow alone leaves out; else nothing."""
    there = [one.name for one in registry.limitable()]
    if plan.parts or plan.asked.of_any_framework or not there:
        return ""
    take = "takes what it wants" if len(there) == 1 else "take what they want"
    return f"`{plan.asked}` is for TensorFlow alone: {format_list(there)} {take}. A `limit` is for every framework."
