"""What the words of `%gpu` mean for each framework of this process: it connects `config` and `frameworks`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tfgpu_magic import frameworks
from tfgpu_magic.config import refusal
from tfgpu_magic.config.framework_plan import FrameworkPlan, FrameworkState, Wanted
from tfgpu_magic.config.memory import context_bytes
from tfgpu_magic.config.plan import Plan, draft
from tfgpu_magic.config.policy import NOTHING, Policy
from tfgpu_magic.config.process_state import ProcessState, Stage
from tfgpu_magic.config.request import Memory, Reset
from tfgpu_magic.config.resolver import resolve
from tfgpu_magic.config.runtime import RUNTIME
from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.frameworks import Limited
from tfgpu_magic.monitor.report import TENSORFLOW
from tfgpu_magic.monitor.snapshot import Snapshot
from tfgpu_magic.units import rounded


def plan(
    asked: Policy,
    scope: str,
    make: Callable[[Policy, ProcessState], Plan],
    current: Plan,
    snapshot: Snapshot,
    process: ProcessState,
    *,
    anew: bool = False,
) -> Plan:
    """Return the plan for TensorFlow and for the frameworks beside it.

    Args:
        asked: what is asked now.
        scope: of which frameworks it is asked: ``tensorflow``, or ``all``.
        make: returns the plan for TensorFlow.
        current: the plan in force or waiting.
        snapshot: the machine's GPUs now.
        process: this process, or a new one.
        anew: whether it is for a new process, in which no framework is imported yet.

    Raises:
        PolicyError: a word is for TensorFlow only.
        Refused, TooLate: it cannot be enforced; see `extended`, and what `make` raises.
    """
    current = replace(current, frameworks=()) if anew else current
    if scope == "tensorflow":
        made = extended(make(asked, process), NOTHING, current, snapshot, process, anew=anew)
        return replace(made, notes=(*made.notes, *left_free(made)))
    words, for_all = for_tensorflow(asked), replace(process, keras=None)
    if not anew and fixed():  # what is free does not matter where it is too late
        extended(draft(words, snapshot, for_all), asked, current, snapshot, process)
    made = extended(make(words, for_all), asked, current, snapshot, process, anew=anew)
    return without_gpus(made, process)


def for_tensorflow(policy: Policy) -> Policy:
    """Return what words for every framework ask of TensorFlow.

    Raises:
        PolicyError: one of them can be asked of TensorFlow only.
    """
    for request in policy:
        if isinstance(request, Memory) and not request.of_any_framework:
            error = PolicyError(
                f"Only TensorFlow has logical GPUs: `%tf_gpu {request}`. For all there is `%gpu limit`."
            )
            error.literal = True
            raise error
    return _share(policy, TENSORFLOW)


def extended(
    plan: Plan, asked: Policy, current: Plan, snapshot: Snapshot, process: ProcessState, *, anew: bool = False
) -> Plan:
    """Return TensorFlow's plan, extended by what is done about the other frameworks.

    Args:
        plan: the plan for TensorFlow.
        asked: what is asked of every framework now.
        current: the plan in force or waiting, with what the others were asked before.
        snapshot: the machine's GPUs now.
        process: this process now.
        anew: whether it is for a new process, in which no framework is imported yet.

    Raises:
        Refused: a framework has taken more than it is to have.
        TooLate: a framework uses a GPU already, and cannot be told any more.
    """
    if not (asked.requests or current.others.requests or process.ceiling):
        return plan
    if plan.show and asked.choice is not None and len(plan.devices) < len(process.shown or ()):
        raise refusal.shown_to_others(asked, process)
    policy = current.others.then(Policy(tuple(r for r in asked if isinstance(r, Memory | Reset))))
    before = {one.framework: one for one in current.frameworks}
    parts: list[FrameworkPlan] = []
    for framework in frameworks.limited():
        part = framework.plan(_wanted(policy, framework, plan, snapshot, process), _state(framework, anew=anew))
        changed = not part.asks_the_same(before.get(part.framework))
        if changed and not anew and _is_fixed(framework):
            raise refusal.framework_too_late(framework.name, framework.since, asked, process)
        parts.append(part)
    return replace(
        plan,
        others=policy,
        frameworks=tuple(parts),
        environment={**plan.environment, **{name: value for part in parts for name, value in part.environment.items()}},
        in_force=plan.in_force and all(part.asks_the_same(before.get(part.framework)) for part in parts),
        notes=(*plan.notes, *_notes(parts), *_together(plan, parts, process)),
    )


def fixed() -> bool:
    """Tell whether there is a framework beside TensorFlow that cannot be told anything any more."""
    return any(map(_is_fixed, frameworks.limited()))


def _is_fixed(framework: Limited) -> bool:
    return framework.fixed_once_used and framework.stage() in (Stage.READY, Stage.LISTED)


def apply(plan: Plan) -> None:
    """Apply a plan to every framework that it is about, whole or not at all.

    Raises:
        Refused: a framework rejected it; everything is as it was.
    """
    before = () if RUNTIME.plan is None else RUNTIME.plan.frameworks
    try:
        _configure(plan.frameworks, before)
        RUNTIME.apply(plan)
    except BaseException:
        _configure(before, plan.frameworks)
        raise


def _configure(parts: Sequence[FrameworkPlan], before: Sequence[FrameworkPlan]) -> None:
    """Tell the frameworks that are imported what variables cannot tell them any more, where it differs from before.

    Raises:
        Refused: one of them rejected it.
    """
    now, then = ({part.framework: part for part in some} for some in (parts, before))
    for framework in frameworks.limited() if now or then else ():
        nothing = FrameworkPlan(framework=framework.name)
        part = now.get(framework.name, nothing)
        if part.asks_the_same(then.get(framework.name)):
            continue
        try:
            framework.configure(part)
        except Exception as error:  # a framework's errors have no common root
            raise Refused(f"Not applied. {framework.name} did not take it: {error}") from error


def without_gpus(plan: Plan, process: ProcessState) -> Plan:
    """Return the plan with TensorFlow kept from the GPUs, where Keras computes with another framework."""
    if process.keras is None or not plan.devices or process.stage is Stage.READY:
        return plan
    note = (
        f"Keras computes with {process.keras} here and may import TensorFlow too, which is kept from the GPUs; for "
        "TensorFlow's own use of them say what it may take, as in `%tf_gpu limit 2GiB`."
    )
    return replace(plan, devices=(), show=True, growth=None, notes=(*plan.notes, note))


def left_free(plan: Plan) -> tuple[str, ...]:
    """Return a note on the imported frameworks that words for TensorFlow leave free to take what they want."""
    if not plan.asked.memory or plan.others.requests:
        return ()
    imported = frameworks.imported()
    awake = [one.name for one in frameworks.limited() if one.name in imported]
    if not awake:
        return ()
    words = "; ".join(str(request) for request in plan.asked.memory if request.of_any_framework) or "growth"
    are = "is" if len(awake) == 1 else "are"
    return (f"{_all(awake)} {are} imported here too, and left free: `%gpu {words}` is for every framework.",)


def standing(plan: Plan) -> str:
    """Return one sentence on what an applied plan does for every framework."""
    tensorflow = [TENSORFLOW] if frameworks.has_tensorflow() else []
    names = _all([*tensorflow, *(part.framework for part in plan.frameworks)])
    if not plan.others.requests and not plan.asked.requests:
        return f"No policy is set: the defaults of {names} hold."
    asked = plan.others if plan.others.requests else plan.asked
    return f"`{asked}` is in force already." if plan.in_force else f"`{asked}` holds for {names}, from first use on."


def _wanted(policy: Policy, framework: Limited, plan: Plan, snapshot: Snapshot, process: ProcessState) -> Wanted:
    """Return what is asked of one framework, GPU by GPU."""
    uuids = tuple(str(device.gpu.uuid) for device in plan.devices) or process.shown
    alone = ProcessState(
        shown=uuids,
        given=uuids,
        environment=process.environment,
        promises=process.promises,
        ceiling=process.ceiling,
        host=process.host,
    )
    resolved = resolve(NOTHING, _share(policy, framework.name), snapshot, alone)
    return Wanted(devices=resolved.devices(), grows=resolved.growth)


def _state(framework: Limited, *, anew: bool) -> FrameworkState:
    environment, version = RUNTIME.environment_for_children(), framework.version()
    if anew:
        return FrameworkState(environment=environment, version=version)
    return FrameworkState(
        environment=environment,
        version=version,
        held=framework.held(),
    )


def _share(policy: Policy, framework: str) -> Policy:
    """Return a policy with each request replaced by a framework's share of it."""
    return Policy(tuple(r.share_of(framework) if isinstance(r, Memory) else r for r in policy))


def _notes(parts: Sequence[FrameworkPlan]) -> Iterator[str]:
    for part in parts:
        if part.takes:
            yield f"{part.framework} takes {part.takes}."
        yield from part.notes


def _together(plan: Plan, parts: Sequence[FrameworkPlan], process: ProcessState) -> Iterator[str]:
    """Give a note on each GPU of which several frameworks that are imported may take a part."""
    awake = frameworks.imported()
    for device in plan.devices:
        sizes = {TENSORFLOW: sum(device.limits)} if process.stage is not Stage.ABSENT and device.limits else {}
        uuid, total = str(device.gpu.uuid), device.gpu.total or 0
        sizes |= {one.framework: one.limits[uuid] for one in parts if one.framework in awake and uuid in one.limits}
        if len(sizes) > 1:
            each = ", ".join(f"{name} {rounded(size)}" for name, size in sizes.items())
            yield (
                f"Together they may take {rounded(sum(sizes.values()))} of GPU {device.gpu.label} ({each}), and CUDA's "
                f"context about {rounded(context_bytes(total))} beside that; `--share` divides one limit among them."
            )


def _all(names: Sequence[str]) -> str:
    """Return names as people list them: ``TensorFlow, PyTorch and JAX``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "every framework"
