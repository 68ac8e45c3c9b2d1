"""What is asked of every framework, and done about each one beside TensorFlow: its plan, what it is told, and notes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.registry import Framework
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.message import Line, Message, in_a_row, listed, msg
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy import fallback, refusal
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.framework_plan import FrameworkPlan, FrameworkRequest, FrameworkState
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.policy.plan import Others, Plan, draft
from tfgpu_magic.policy.policy import NOTHING, Memory, Policy, Reset
from tfgpu_magic.policy.process_state import DEVICES, ProcessState, Stage, showing
from tfgpu_magic.policy.resolver import shares


def plan(
    asked: Policy, make: Callable[[Policy, ProcessState], Plan], snapshot: Snapshot, process: ProcessState
) -> Plan:
    """Return the plan for what a user asks of every framework.

    Args:
        asked: what is asked now.
        make: returns the plan for TensorFlow.
        snapshot: the machine's GPUs now.
        process: this process, or a new one.

    Raises:
        PolicyError: a word is for TensorFlow only.
        Refused: it cannot be enforced: as `make` says, or since another framework has taken more already.
        TooLate: another framework uses a GPU already, and cannot be told any more.
    """
    there, alone, own = registry.limited(), process._replace(keras=None), _for_tensorflow(asked)
    now = Policy(tuple(request for request in asked if isinstance(request, Memory | Reset)))
    words = RUNTIME.current.others.asked.then(now)
    before = _before(process)

    def extended(made: Plan) -> Plan:
        if made.show and asked.choice is not None and len(made.devices) < len(process.shown or ()):
            raise refusal.shown_to_others(asked, process)
        earlier = RUNTIME.current.others.asked
        parts = []
        for one in there:
            wanted = _wanted(one, earlier, now, made, snapshot, process)
            part = one.plan(wanted, _state(one, process))
            if not (process.anew or part.asks_the_same(before.get(one.name))) and _is_fixed(one):
                raise refusal.framework_too_late(one.name, one.since, asked, process)
            parts.append(part)
        return _with(made, Others(words, tuple(parts)), before)

    if not process.anew and any(map(_is_fixed, there)):
        extended(draft(own, snapshot, alone))  # what is free does not matter where it is too late
    return _without_gpus(noted(extended(make(own, alone)), process), process)


def needed() -> bool:
    """Tell whether a framework beside TensorFlow is installed."""
    return bool(registry.limited())


def with_others(made: Plan, snapshot: Snapshot, process: ProcessState) -> Plan:
    """Return a plan for TensorFlow, extended by what the others were asked before, under the ceiling.

    Nobody asks anything of them now, so nothing is refused: of each the nearest holds that can be had.

    Args:
        made: the plan for TensorFlow.
        snapshot: the machine's GPUs now.
        process: this process, or a new one.
    """
    before, words = _before(process), RUNTIME.current.others.asked
    made = replace(made, others=Others(words))
    parts: list[FrameworkPlan] = []
    for one in registry.limited():
        try:
            parts.append(_nearest(one, made, before.get(one.name), snapshot, process))
        except Exception as error:  # whatever it is, the others have their share, and it keeps what it has
            why = msg("{name} is NOT held: {error}", name=one.name, error=f"{type(error).__name__}: {error}")
            kept = before.get(one.name) or FrameworkPlan(framework=one.name, environment=growth([one]))
            hidden = {} if process.ceiling is None else showing(())
            parts.append(replace(kept, environment={**kept.environment, **hidden}, unmet=why))
    return _with(made, Others(words, tuple(parts)), before)


def growth(some: Iterable[Framework] = registry.FRAMEWORKS) -> dict[str, str]:
    """Return the variables with which the memory of frameworks grows."""
    return {name: value for one in some for name, value in one.grows_by.items()}


def _before(process: ProcessState) -> dict[str, FrameworkPlan]:
    """Return what is done about the others now, by their names; a new process has nothing of it."""
    return {} if process.anew else {part.framework: part for part in RUNTIME.current.others.parts}


def _with(made: Plan, others: Others, before: Mapping[str, FrameworkPlan]) -> Plan:
    """Return a plan for TensorFlow with what is done about the others."""
    same = all(part.asks_the_same(before.get(part.framework)) for part in others.parts)
    return replace(made, others=others, in_force=made.in_force and same)


def _for_tensorflow(policy: Policy) -> Policy:
    """Return what words for every framework ask of TensorFlow.

    Raises:
        PolicyError: one of them can be asked of TensorFlow only.
    """
    for request in policy.memory:
        if not request.of_any_framework:
            raise PolicyError(
                msg(
                    "Only TensorFlow has logical GPUs: say `{request}` with its own magic, `tf_gpu`. Every framework "
                    "takes a `limit`.",
                    request=request,
                )
            )
    return policy.for_framework(TENSORFLOW)


def _nearest(
    framework: Framework,
    plan: Plan,
    before: FrameworkPlan | None,
    snapshot: Snapshot,
    process: ProcessState,
) -> FrameworkPlan:
    """Return what is done about one framework of which nothing is asked now: the nearest that can be had.

    Args:
        framework: the framework.
        plan: TensorFlow's plan, with what the others are asked.
        before: what was done about it before; None where nothing was.
        snapshot: the machine's GPUs now.
        process: this process, or a new one.
    """
    if before is not None and before.limits and not (snapshot.gpus or snapshot.absent):
        return before  # it was decided when the figures could be had
    part = _possible(framework, plan, snapshot, process, _state(framework, process))
    if process.anew or part.asks_the_same(before) or not _is_fixed(framework):
        return part
    kept = before or FrameworkPlan(framework=framework.name)
    if kept.is_within(part):
        return kept
    late = refusal.framework_too_late(framework.name, framework.since, NOTHING, process).reason.alone
    held = f"The ceiling `{process.ceiling}` does not hold it. Restart for that."
    return replace(kept, takes="", notes=(), unmet=in_a_row((late, held)) if process.ceiling else late)


def _possible(
    framework: Framework, plan: Plan, snapshot: Snapshot, process: ProcessState, state: FrameworkState
) -> FrameworkPlan:
    """Return the nearest to what was asked of a framework that can be had; no GPU where nobody knows what that is."""
    why: Message | None = None
    memory = plan.others.asked.memory
    none = process.ceiling is not None and not process.ceiling.amounts
    for words in () if none else (memory, *fallback.easier(memory, snapshot.gpus, process)):
        try:
            wanted = _wanted(framework, Policy(tuple(words)), NOTHING, plan, snapshot, process)
            part = framework.plan(replace(wanted, asked=False), state)
        except Refused as error:
            why = why or error.reason.alone
            continue
        kept = f"{framework.name} is not held to all of `{plan.others.asked}`."
        return replace(part, unmet=in_a_row((kept, why))) if why else part
    known = {gpu.uuid: gpu for gpu in snapshot.gpus}
    gpus = [known.get(uuid, Gpu(index=0, uuid=uuid)) for uuid in process.shown or ()]
    nothing = tuple(Device(gpu=gpu._replace(total=gpu.total or 1), limits=(0,)) for gpu in gpus)
    part = framework.plan(FrameworkRequest(devices=nothing, grows=True, asked=False), state)
    return replace(
        part,
        environment={**part.environment, **showing(())},
        takes="",
        notes=(),
        unmet=in_a_row((f"{framework.name} gets no GPU.", why)) if why else part.unmet,
    )


def _is_fixed(framework: Framework) -> bool:
    """Tell whether a framework cannot be told anything any more."""
    return framework.fixed_once_used and framework.stage() in (Stage.READY, Stage.LISTED)


def tell(parts: Sequence[FrameworkPlan], before: Sequence[FrameworkPlan]) -> Iterator[Refused]:
    """Tell the frameworks that are imported what variables cannot tell them any more, where it differs from before.

    It gives the error of each that rejects it.
    """
    now, then = ({part.framework: part for part in some} for some in (parts, before))
    for framework in registry.limited():
        nothing = FrameworkPlan(framework=framework.name)
        part = now.get(framework.name, nothing)
        if part.asks_the_same(then.get(framework.name)):
            continue
        try:
            framework.configure(part)
        except Exception as error:  # a framework's errors have no common root
            refused = Refused(msg("{name} did not take it: {error}", name=framework.name, error=error))
            refused.__cause__ = error
            yield refused


def _without_gpus(plan: Plan, process: ProcessState) -> Plan:
    """Return the plan with TensorFlow kept from the GPUs, where Keras computes with another framework."""
    if process.keras is None or not plan.devices or process.stage is Stage.READY:
        return plan
    own = 'tfgpu_magic.apply("limit 2GiB")' if process.host == "program" else Line("limit 2GiB")
    note = msg(
        "Keras computes with {backend} here and may import TensorFlow too, which is kept from the GPUs; for "
        "TensorFlow's own use of them say what it may take, as in `{line}`.",
        backend=process.keras,
        line=own,
    )
    return replace(plan.hiding_all(), notes=(*plan.notes, note))


def _wanted(
    framework: Framework, earlier: Policy, now: Policy, plan: Plan, snapshot: Snapshot, process: ProcessState
) -> FrameworkRequest:
    """Return what is asked of one framework, GPU by GPU; what was asked earlier is lowered to the ceiling.

    Raises:
        Refused: it cannot be had together, or what it is is unknown; or what is asked now passes the ceiling.
    """
    before, new = earlier.for_framework(framework.name), now.for_framework(framework.name)
    resolved = shares(before, new, _shown(plan, process), snapshot, process)
    return FrameworkRequest(devices=resolved.devices(), grows=resolved.growth)


def _shown(plan: Plan, process: ProcessState) -> tuple[str, ...] | None:
    """Return the UUIDs of the GPUs that CUDA shows the others: all of the process's, unless a variable hides some."""
    hides = DEVICES in plan.environment and not plan.show
    return tuple(str(device.gpu.uuid) for device in plan.devices) if hides else process.shown


def _state(framework: Framework, process: ProcessState) -> FrameworkState:
    held: Mapping[str, int] = {}
    with contextlib.suppress(Exception):  # an allocator of the user's tells no figures; the other frameworks are held
        held = {} if process.anew else framework.held()
    return FrameworkState(
        environment=RUNTIME.environment_for_children(),
        version=framework.version(),
        held=held,
        allocator="" if process.anew else framework.allocator(),
    )


def noted(plan: Plan, process: ProcessState) -> Plan:
    """Return a plan with notes on what the frameworks beside TensorFlow take."""
    there = registry.limited()
    if not plan.others.parts:
        return replace(plan, notes=(*plan.notes, *_left_free(plan, there)))
    return replace(plan, notes=(*plan.notes, *_each(plan), *_kept(plan), *_together(plan, process)))


def standing(plan: Plan) -> str:
    """Return one sentence on what an applied plan does for every framework."""
    tensorflow = [TENSORFLOW] if registry.installed("tensorflow") else []
    there = [*([] if plan.hidden else tensorflow), *(part.framework for part in plan.others.parts)]
    names = listed(there) if there else "every framework"
    if not plan.others.asked.requests and not plan.asked.requests:
        return f"No policy is set: the defaults of {names} hold."
    asked = of_all(plan.asked, plan.others.asked)
    if plan.in_force:
        return f"`{asked}` is in force already."
    return f"`{asked}` holds for {names}, from first use on."


def not_inherited(plan: Plan) -> list[str]:
    """Return the names of the frameworks whose limits no variable says to the programs that this process starts."""
    tensorflow = [TENSORFLOW] if registry.installed("tensorflow") else []
    return tensorflow + [part.framework for part in plan.others.parts if part.limits and not part.environment]


def of_all(own: Policy, others: Policy) -> Policy:
    """Return what is asked of TensorFlow with what is asked of the others in place of what its memory is asked."""
    rest = tuple(request for request in own if not isinstance(request, Memory))
    return Policy((*rest, *others)) if others.requests else own


def left_out(plan: Plan) -> str:
    """Return a sentence on the installed frameworks that a policy for TensorFlow alone leaves out; else nothing."""
    there = [one.name for one in registry.limited()]
    if plan.others.parts or plan.asked.of_any_framework or not there:
        return ""
    take = "takes what it wants" if len(there) == 1 else "take what they want"
    return f"`{plan.asked}` is for TensorFlow alone: {listed(there)} {take}. A `limit` is for every framework."


def _left_free(plan: Plan, there: Sequence[Framework]) -> tuple[Message, ...]:
    """Return a note on the imported frameworks that words for TensorFlow leave free to take what they want."""
    imported = registry.imported()
    awake = [one.name for one in there if one.name in imported]
    if not (plan.asked.memory and awake):
        return ()
    words = "; ".join(str(request) for request in plan.asked.memory if request.of_any_framework) or "growth"
    are = "is" if len(awake) == 1 else "are"
    return (
        msg(
            "{names} {are} imported here too, and left free: `%gpu {words}` is for every framework.",
            names=listed(awake),
            are=are,
            words=words,
        ),
    )


def _each(plan: Plan) -> Iterator[Message]:
    """Give what is done about each framework, and why one is not held."""
    on_cpu = {one.name for one in registry.FRAMEWORKS if one.on_cpu()}
    for part in plan.others.parts:
        if part.framework in on_cpu:
            yield msg("{name} has only the CPU here, and takes nothing of a GPU.", name=part.framework)
        elif part.told:
            yield part.told
        yield from part.notes
        if part.unmet:
            yield part.unmet


def _kept(plan: Plan) -> Iterator[Message]:
    """Give a note on the frameworks that keep what they have taken, where TensorFlow gives back."""
    if plan.releases and any(request.releases for request in plan.others.asked.memory):
        others = listed([part.framework for part in plan.others.parts])
        yield msg("--release is TensorFlow's alone: nothing that {names} took goes back by itself.", names=others)


def _together(plan: Plan, process: ProcessState) -> Iterator[Message]:
    """Give a note on each GPU of which several frameworks that are imported may take a part."""
    awake = registry.imported()
    for device in plan.devices:
        sizes = {TENSORFLOW: sum(device.limits)} if process.stage is not Stage.ABSENT and device.limits else {}
        uuid, total = str(device.gpu.uuid), device.gpu.total or 0
        parts = [one for one in plan.others.parts if one.framework in awake]
        sizes |= {one.framework: one.limits[uuid] for one in parts if uuid in one.limits}
        if len(sizes) > 1:
            yield msg(
                "Together they may take {size} of GPU {gpu} ({each}), and CUDA's context about {context} beside that.",
                size=rounded(sum(sizes.values())),
                gpu=device.gpu.label,
                each=", ".join(f"{name} {rounded(size)}" for name, size in sizes.items()),
                context=rounded(context_bytes(total)),
            )
