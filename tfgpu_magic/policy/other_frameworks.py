"""What is done about each framework beside TensorFlow, for what it is asked, and what its user should know. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tfgpu_magic.errors import Refused
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.message import Message, format_list, msg, paragraph
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy import refusal
from tfgpu_magic.policy.easier import easier_memory
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.policy.plan import FrameworkPlan, FrameworkState, Plan
from tfgpu_magic.policy.policy import NOTHING, Policy
from tfgpu_magic.policy.process_state import DEVICES, ProcessState, Stage, showing
from tfgpu_magic.policy.resolver import shares


def asked(
    words: Policy, now: Policy, plan: Plan, snapshot: Snapshot, process: ProcessState
) -> tuple[FrameworkPlan, ...]:
    """Return what is done about each for what a user asks of every framework.

    Args:
        words: what is asked now.
        now: those of them that are about memory.
        plan: the plan for TensorFlow.
        snapshot: the machine's GPUs now.
        process: this process, or a new one.

    Raises:
        Refused: it cannot be enforced, as a framework has taken more already.
        TooLate: a framework uses a GPU already, and cannot be told any more.
    """
    if plan.show and words.choice is not None and len(plan.devices) < len(process.shown or ()):
        raise refusal.shown_to_others(words, process)
    parts = []
    for one in process.frameworks:
        part = one.plan(_wanted(one, process.asked_of_all, now, plan, snapshot, process), one)
        before = process.parts_in_force.get(one.name)
        if not (process.anew or part.tells_the_same(before)) and one.fixed:
            raise refusal.framework_too_late(one.name, one.since, words, process)
        parts.append(part)
    return tuple(parts)


def nearest(plan: Plan, snapshot: Snapshot, process: ProcessState) -> tuple[FrameworkPlan, ...]:
    """Return what is done about each where nobody asks anything now: the nearest to what was asked that can be had.

    Args:
        plan: the plan for TensorFlow, with what the others are asked.
        snapshot: the machine's GPUs now.
        process: this process, or a new one.
    """
    parts = []
    for one in process.frameworks:
        before = process.parts_in_force.get(one.name)
        try:
            part = _nearest(one, before, plan, snapshot, process)
        except Exception as error:  # whatever it is, the others have their share, and it keeps what it has
            why = msg("{name} is NOT held: {error}", name=one.name, error=f"{type(error).__name__}: {error}")
            kept = before or FrameworkPlan(framework=one.name, environment=one.grows_by)
            hidden = {} if process.ceiling is None else showing(())
            part = replace(kept, environment={**kept.environment, **hidden}, unmet=why)
        parts.append(part)
    return tuple(parts)


def notes(plan: Plan, process: ProcessState) -> Iterator[Message]:
    """Yield notes on what the frameworks beside TensorFlow take by a plan."""
    if not plan.parts:
        yield from _left_free(plan, process)
        return
    states = {one.name: one for one in process.frameworks}
    for part in plan.parts:
        state = states.get(part.framework)
        if state is not None and state.on_cpu:
            yield msg("{name} has only the CPU here, and takes nothing of a GPU.", name=part.framework)
        elif part.told:
            yield part.told
        yield from part.notes
        if part.unmet:
            yield part.unmet
    if plan.releases and any(request.releases for request in plan.asked_of_all.memory):
        others = format_list([part.framework for part in plan.parts])
        yield msg("--release is TensorFlow's alone: nothing that {names} took goes back by itself.", names=others)
    yield from _together(plan, process)


def _nearest(
    state: FrameworkState, before: FrameworkPlan | None, plan: Plan, snapshot: Snapshot, process: ProcessState
) -> FrameworkPlan:
    if before is not None and before.limits and not (snapshot.gpus or snapshot.absent):
        return before  # it was decided when the figures could be had
    part = _possible(replace(state, strict=False), plan, snapshot, process)
    if process.anew or part.tells_the_same(before) or not state.fixed:
        return part
    kept = before or FrameworkPlan(framework=state.name)
    if kept.is_within(part):
        return kept
    late = refusal.framework_too_late(state.name, state.since, NOTHING, process).reason.without_next
    held = f"The ceiling `{process.ceiling}` does not hold it. Restart for that."
    return replace(kept, takes="", notes=(), unmet=paragraph((late, held)) if process.ceiling else late)


def _possible(state: FrameworkState, plan: Plan, snapshot: Snapshot, process: ProcessState) -> FrameworkPlan:
    """Return the nearest to what was asked of a framework that can be had; no GPU where nobody knows what that is."""
    why: Message | None = None
    memory = plan.asked_of_all.memory
    none = process.ceiling is not None and not process.ceiling.amounts
    for words in () if none else (memory, *easier_memory(memory, snapshot.gpus, process)):
        try:
            part = state.plan(_wanted(state, Policy(tuple(words)), NOTHING, plan, snapshot, process), state)
        except Refused as error:
            why = why or error.reason.without_next
            continue
        kept = f"{state.name} is not held to all of `{plan.asked_of_all}`."
        return replace(part, unmet=paragraph((kept, why))) if why else part
    known = {gpu.uuid: gpu for gpu in snapshot.gpus}
    gpus = [known.get(uuid, Gpu(index=0, uuid=uuid)) for uuid in process.shown or ()]
    nothing = tuple(Device(gpu=gpu._replace(total=gpu.total or 1), limits=(0,)) for gpu in gpus)
    part = state.plan(FrameworkPlan(framework=state.name, devices=nothing, growth=True), state)
    return replace(
        part,
        environment={**part.environment, **showing(())},
        takes="",
        notes=(),
        unmet=paragraph((f"{state.name} gets no GPU.", why)) if why else part.unmet,
    )


def _wanted(
    state: FrameworkState, earlier: Policy, now: Policy, plan: Plan, snapshot: Snapshot, process: ProcessState
) -> FrameworkPlan:
    """Return what is asked of one framework, GPU by GPU; what was asked earlier is lowered to the ceiling.

    CUDA shows it all of the process's GPUs, unless a variable hides some.

    Raises:
        Refused: it cannot be had together, or what it is is unknown; or what is asked now passes the ceiling.
    """
    before, new = earlier.for_framework(state.name), now.for_framework(state.name)
    hides = DEVICES in plan.environment and not plan.show
    shown = tuple(str(device.gpu.uuid) for device in plan.devices) if hides else process.shown
    resolved = shares(before, new, shown, snapshot, process)
    return FrameworkPlan(framework=state.name, devices=tuple(resolved.devices), growth=resolved.growth)


def _left_free(plan: Plan, process: ProcessState) -> Iterator[Message]:
    """Yield a note on the imported frameworks that words for TensorFlow leave free to take what they want."""
    awake = [one.name for one in process.frameworks if one.imported]
    if plan.asked.memory and awake:
        words = "; ".join(str(request) for request in plan.asked.memory if request.of_any_framework) or "growth"
        yield msg(
            "{names} {are} imported here too, and left free: `%gpu {words}` is for every framework.",
            names=format_list(awake),
            are="is" if len(awake) == 1 else "are",
            words=words,
        )


def _together(plan: Plan, process: ProcessState) -> Iterator[Message]:
    """Yield a note on each GPU of which several frameworks that are imported may take a part."""
    awake = {one.name for one in process.frameworks if one.imported}
    for device in plan.devices:
        sizes = {TENSORFLOW: sum(device.limits)} if process.stage is not Stage.ABSENT and device.limits else {}
        uuid, total = str(device.gpu.uuid), device.gpu.total or 0
        parts = [part for part in plan.parts or () if part.framework in awake]
        sizes |= {part.framework: part.limits[uuid] for part in parts if uuid in part.limits}
        if len(sizes) > 1:
            yield msg(
                "Together they may take {size} of GPU {gpu} ({each}), and CUDA's context about {context} beside that.",
                size=rounded(sum(sizes.values())),
                gpu=device.gpu.label,
                each=", ".join(f"{name} {rounded(size)}" for name, size in sizes.items()),
                context=rounded(context_bytes(total)),
            )
