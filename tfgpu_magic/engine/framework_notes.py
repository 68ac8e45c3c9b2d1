"""What is said of the frameworks beside TensorFlow: notes on a plan that `everywhere` has made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.registry import Framework
from tfgpu_magic.model.report import TENSORFLOW
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.process_state import ProcessState, Stage
from tfgpu_magic.units import rounded


def noted(plan: Plan, process: ProcessState) -> Plan:
    """Return a plan with notes on what the frameworks beside TensorFlow take."""
    there = registry.limited()
    if not plan.others.parts:
        return replace(plan, notes=(*plan.notes, *_left_free(plan, there)))
    return replace(plan, notes=(*plan.notes, *_each(plan), *_kept(plan), *_together(plan, process)))


def standing(plan: Plan) -> str:
    """Return one sentence on what an applied plan does for every framework."""
    tensorflow = [TENSORFLOW] if registry.installed("tensorflow") else []
    names = _all([*([] if plan.hides_all else tensorflow), *(part.framework for part in plan.others.parts)])
    if not plan.others.asked.requests and not plan.asked.requests:
        return f"No policy is set: the defaults of {names} hold."
    asked = plan.asked_of_all
    return f"`{asked}` is in force already." if plan.in_force else f"`{asked}` holds for {names}, from first use on."


def left_out(plan: Plan) -> str:
    """Return a sentence on the installed frameworks that a policy for TensorFlow alone leaves out; else nothing."""
    there = [one.name for one in registry.limited()]
    if plan.others.parts or plan.asked.of_any_framework or not there:
        return ""
    take = "takes what it wants" if len(there) == 1 else "take what they want"
    return f"`{plan.asked}` is for TensorFlow alone: {_all(there)} {take}. A `limit` is for every framework."


def _left_free(plan: Plan, there: Sequence[Framework]) -> tuple[str, ...]:
    """Return a note on the imported frameworks that words for TensorFlow leave free to take what they want."""
    imported = registry.imported()
    awake = [one.name for one in there if one.name in imported]
    if not (plan.asked.memory and awake):
        return ()
    words = "; ".join(str(request) for request in plan.asked.memory if request.of_any_framework) or "growth"
    are = "is" if len(awake) == 1 else "are"
    return (f"{_all(awake)} {are} imported here too, and left free: `%gpu {words}` is for every framework.",)


def _each(plan: Plan) -> Iterator[str]:
    """Give what is done about each framework, and why one is not held."""
    for part in plan.others.parts:
        if part.takes:
            yield f"{part.framework} takes {part.takes}."
        yield from part.notes
        if part.unmet:
            yield part.unmet


def _kept(plan: Plan) -> Iterator[str]:
    """Give a note on the frameworks that keep what they have taken, where TensorFlow gives back."""
    if plan.releases and any(request.releases for request in plan.others.asked.memory):
        others = _all([part.framework for part in plan.others.parts])
        yield f"--release is TensorFlow's alone: nothing that {others} took goes back by itself."


def _together(plan: Plan, process: ProcessState) -> Iterator[str]:
    """Give a note on each GPU of which several frameworks that are imported may take a part."""
    awake = registry.imported()
    for device in plan.devices:
        sizes = {TENSORFLOW: sum(device.limits)} if process.stage is not Stage.ABSENT and device.limits else {}
        uuid, total = str(device.gpu.uuid), device.gpu.total or 0
        parts = [one for one in plan.others.parts if one.framework in awake]
        sizes |= {one.framework: one.limits[uuid] for one in parts if uuid in one.limits}
        if len(sizes) > 1:
            each = ", ".join(f"{name} {rounded(size)}" for name, size in sizes.items())
            yield (
                f"Together they may take {rounded(sum(sizes.values()))} of GPU {device.gpu.label} ({each}), and CUDA's "
                f"context about {rounded(context_bytes(total))} beside that."
            )


def _all(names: Sequence[str]) -> str:
    """Return names as people list them: ``TensorFlow, PyTorch and JAX``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "every framework"
