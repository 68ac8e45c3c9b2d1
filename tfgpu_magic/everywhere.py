"""What the words of `%gpu` mean for each framework of this process: it connects `config` and `frameworks`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

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

Scope: TypeAlias = Literal["tensorflow", "all", "others"]
"""The frameworks that words are for: TensorFlow, all, or as a configuration has it, those beside TensorFlow."""


def plan(
    asked: Policy,
    scope: Scope,
    make: Callable[[Policy, ProcessState], Plan],
    current: Plan,
    snapshot: Snapshot,
    process: ProcessState,
    *,
    anew: bool = False,
) -> Plan:
    """Return the plan for TensorFlow, extended by what is done about the frameworks beside it.

    Args:
        asked: what is asked now.
        scope: of which frameworks it is asked.
        make: returns the plan for TensorFlow.
        current: the plan in force or waiting, with what the others were asked before.
        snapshot: the machine's GPUs now.
        process: this process, or a new one.
        anew: whether it is for a new process, in which no framework is imported yet.

    Raises:
        PolicyError: a word is for TensorFlow only.
        Refused: it cannot be enforced: as `make` says, or since another framework that is asked has taken more already.
        TooLate: another framework that is asked uses a GPU already, and cannot be told any more.
    """
    there, alone = frameworks.limited(), process
    others = NOTHING if scope == "tensorflow" else asked
    if scope == "all":
        asked, alone = _for_tensorflow(asked), replace(process, keras=None)
    if not (others.requests or current.others.requests or process.ceiling):
        made = make(asked, alone)
        return replace(made, notes=(*made.notes, *_left_free(made, there)))
    now = Policy(tuple(r for r in others if isinstance(r, Memory | Reset)))
    before = {} if anew else {one.framework: one for one in current.frameworks}

    def parts(made: Plan) -> list[FrameworkPlan]:
        if made.show and others.choice is not None and len(made.devices) < len(process.shown or ()):
            raise refusal.shown_to_others(others, process)
        wanted = [_wanted(one, current.others, now, made, snapshot, process) for one in there]
        return [
            _part(one, what, before.get(one.name), others if scope == "all" else NOTHING, process, anew=anew)
            for one, what in zip(there, wanted, strict=True)
        ]

    if scope == "all" and not anew and any(map(_is_fixed, there)):
        parts(draft(asked, snapshot, alone))  # what is free does not matter where it is too late
    made = make(asked, alone)
    found = parts(made)
    made = replace(
        made,
        others=current.others.then(now),
        frameworks=tuple(found),
        environment={**made.environment, **{name: value for part in found for name, value in part.environment.items()}},
        in_force=made.in_force and all(part.asks_the_same(before.get(part.framework)) for part in found),
        notes=(*made.notes, *_notes(found), *_together(made, found, there, process)),
    )
    return _without_gpus(made, process) if scope == "all" else made


def _for_tensorflow(policy: Policy) -> Policy:
    """Return what words for every framework ask of TensorFlow.

    Raises:
        PolicyError: one of them can be asked of TensorFlow only.
    """
    for request in policy.memory:
        if not request.of_any_framework:
            raise PolicyError(
                f"Only TensorFlow has logical GPUs: say `{request}` with its own magic, `tf_gpu`. Every framework "
                "takes a `limit`."
            )
    return _share(policy, TENSORFLOW)


def _part(
    framework: Limited,
    wanted: Wanted,
    before: FrameworkPlan | None,
    asked: Policy,
    process: ProcessState,
    *,
    anew: bool,
) -> FrameworkPlan:
    """Return what is done about one framework; where nothing is asked of it now, no more than can be.

    Args:
        framework: the framework.
        wanted: what it is to take, by what was asked before, is asked now, and the ceiling.
        before: what was done about it before; None where nothing was.
        asked: the words that a user has for it now.
        process: this process, or a new one.
        anew: whether it is for a new process.

    Raises:
        Refused: it has taken more than it is asked to.
        TooLate: it uses a GPU already, and is asked for something else.
    """
    try:
        part = framework.plan(wanted, _state(framework, anew=anew))
        if anew or part.asks_the_same(before) or not _is_fixed(framework):
            return part
        raise refusal.framework_too_late(framework.name, framework.since, asked, process)
    except Refused as error:
        if asked.requests:
            raise
        kept = before or FrameworkPlan(framework=framework.name)
        held = f" The ceiling `{process.ceiling}` does not hold it." if process.ceiling and not kept.limits else ""
        return replace(kept, takes="", notes=(), unmet=f"{error.reason.removeprefix('Not applied. ')}{held}")


def _is_fixed(framework: Limited) -> bool:
    """Tell whether a framework cannot be told anything any more."""
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


def _without_gpus(plan: Plan, process: ProcessState) -> Plan:
    """Return the plan with TensorFlow kept from the GPUs, where Keras computes with another framework."""
    if process.keras is None or not plan.devices or process.stage is Stage.READY:
        return plan
    own = 'tfgpu_magic.apply("limit 2GiB")' if process.host == "program" else "%tf_gpu limit 2GiB"
    note = (
        f"Keras computes with {process.keras} here and may import TensorFlow too, which is kept from the GPUs; for "
        f"TensorFlow's own use of them say what it may take, as in `{own}`."
    )
    return replace(plan, devices=(), show=True, growth=None, notes=(*plan.notes, note))


def _left_free(plan: Plan, there: Sequence[Limited]) -> tuple[str, ...]:
    """Return a note on the imported frameworks that words for TensorFlow leave free to take what they want."""
    imported = frameworks.imported()
    awake = [one.name for one in there if one.name in imported]
    if not (plan.asked.memory and awake):
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
    asked = plan.asked_of_all
    return f"`{asked}` is in force already." if plan.in_force else f"`{asked}` holds for {names}, from first use on."


def _wanted(
    framework: Limited, earlier: Policy, now: Policy, plan: Plan, snapshot: Snapshot, process: ProcessState
) -> Wanted:
    """Return what is asked of one framework, GPU by GPU; what was asked earlier is lowered to the ceiling."""
    uuids = tuple(str(device.gpu.uuid) for device in plan.devices) or process.shown
    alone = ProcessState(
        shown=uuids,
        given=uuids,
        environment=process.environment,
        promises=process.promises,
        ceiling=process.ceiling,
        host=process.host,
    )
    resolved = resolve(_share(earlier, framework.name), _share(now, framework.name), snapshot, alone)
    return Wanted(devices=resolved.devices(), grows=resolved.growth)


def _state(framework: Limited, *, anew: bool) -> FrameworkState:
    return FrameworkState(
        environment=RUNTIME.environment_for_children(),
        version=framework.version(),
        held={} if anew else framework.held(),
    )


def _share(policy: Policy, framework: str) -> Policy:
    """Return a policy with each request replaced by a framework's share of it."""
    return Policy(tuple(r.share_of(framework) if isinstance(r, Memory) else r for r in policy))


def _notes(parts: Sequence[FrameworkPlan]) -> Iterator[str]:
    for part in parts:
        if part.takes:
            yield f"{part.framework} takes {part.takes}."
        yield from part.notes
        if part.unmet:
            yield part.unmet


def _together(
    plan: Plan, parts: Sequence[FrameworkPlan], there: Sequence[Limited], process: ProcessState
) -> Iterator[str]:
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
