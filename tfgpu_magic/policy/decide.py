"""From words, the GPUs and this process to a plan, or to a refusal. Pure: the machine is not queried or changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from tfgpu_magic.errors import PolicyError, Refused, TooLate
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.message import Line, Message, msg, paragraph, warning
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.policy import fit, other_frameworks, promises, refusal, tensorflow
from tfgpu_magic.policy.easier import easier, similar
from tfgpu_magic.policy.plan import FrameworkPlan, Plan
from tfgpu_magic.policy.policy import NOTHING, Memory, Policy, Reset, reference
from tfgpu_magic.policy.process_state import GROWTH, ProcessState, Stage, showing
from tfgpu_magic.policy.requests.growth import GROWS
from tfgpu_magic.policy.requests.visible import Visible
from tfgpu_magic.policy.resolver import resolve

if TYPE_CHECKING:
    from tfgpu_magic.policy.ceiling import Ceiling

Frameworks: TypeAlias = Literal["tensorflow", "all"]
"""For which frameworks a policy is: TensorFlow, as of `%tf_gpu`, or all, as of `%gpu`."""


def decide(
    asked: Policy,
    snapshot: Snapshot,
    process: ProcessState,
    owners: Callable[[], Mapping[int, str]] = dict,
    *,
    strict: bool = True,
    frameworks: Frameworks = "tensorflow",
    restart: bool | None = None,
    room: bool = True,
) -> Plan:
    """Decide what a policy will do, all of it before any of it is done.

    Args:
        asked: what is asked now; what was asked before and still counts is in `process`.
        snapshot: the machine's GPUs now.
        process: this process now, with what others claim.
        owners: returns the name of each process by its pid; called only when memory is missing, or promised to others.
        strict: whether a user is there to change what cannot be had. Else it replaces all that was asked before, and
            the nearest holds that can be had of it for TensorFlow, as there always is one: a GPU that is lost or full
            is left out, a limit for which memory is missing becomes a cap that is grown into, a request that is not
            possible in any size becomes growth, and what passes the ceiling is lowered to it.
        frameworks: for which frameworks the words are; what the others were told before stays.
        restart: if the plan is for the time after a restart, whether a line can bring one about; else None.
        room: whether there has to be memory for it now.

    Returns:
        The plan. With `Plan.in_force`, nothing is left to do; `Plan.unmet` is why it is not just what was asked.

    Raises:
        PolicyError: a word is for TensorFlow only.
        Refused: it cannot be enforced; the error says why, for every GPU, and what can be done instead.
        TooLate: a new process could enforce it.
    """
    if not strict:
        process = process._replace(asked=NOTHING, settled=NOTHING)
        return _first_possible(asked, snapshot, process, owners, strict=False)
    if frameworks == "tensorflow":
        plan = _first_possible(asked, snapshot, process, owners, strict=True, restart=restart, room=room)
        if process.frameworks and (process.asked_of_all.requests or process.ceiling is not None):
            plan = with_others(plan, snapshot, process)
        return replace(plan, notes=(*plan.notes, *other_frameworks.notes(plan, process)))
    own, alone = _for_tensorflow(asked), process._replace(keras=None)
    now = Policy(tuple(request for request in asked if isinstance(request, Memory | Reset)))

    def extended(plan: Plan) -> Plan:
        parts = other_frameworks.asked(asked, now, plan, snapshot, process)
        return _with_parts(replace(plan, asked_of_all=process.asked_of_all.then(now)), parts, process)

    if not process.anew and any(one.fixed for one in process.frameworks):
        extended(draft(own, snapshot, alone))  # what is free does not matter where it is too late
    plan = extended(_first_possible(own, snapshot, alone, owners, strict=True, restart=restart, room=room))
    return _beside_keras(replace(plan, notes=(*plan.notes, *other_frameworks.notes(plan, process))), process)


def with_others(plan: Plan, snapshot: Snapshot, process: ProcessState) -> Plan:
    """Return a plan for TensorFlow, extended by what the others were asked before, under the ceiling.

    Nobody asks anything of them now, so nothing is refused: of each the nearest holds that can be had.
    """
    plan = replace(plan, asked_of_all=process.asked_of_all)
    return _with_parts(plan, other_frameworks.nearest(plan, snapshot, process), process)


def draft(policy: Policy, snapshot: Snapshot, process: ProcessState) -> Plan:
    """Return the plan for a process in which it is not too late, without a check that there is memory for it.

    Raises:
        Refused: the requests cannot be enforced together, or name what is not there.
    """
    resolved = resolve(process.settled, policy, snapshot, process)
    part = tensorflow.planned(resolved, snapshot, process)
    none = Policy((resolved.choice,) if resolved.choice is not None and resolved.hidden else ())
    asked, settled = (one.without(resolved.dropped).then(policy).then(none) for one in (process.asked, process.settled))
    replaced = [gone for gone in process.asked if gone not in (*asked, *resolved.dropped, *policy)]
    if process.ceiling is not None:  # what was asked before it was lowered
        asked, settled = (process.ceiling.clamp(one, resolved.seen) for one in (asked, settled))
    return Plan(
        asked=asked,
        settled=settled.seeing(list(map(reference, resolved.seen))),
        tensorflow=part,
        asked_of_all=process.asked_of_all,
        blind=not snapshot.gpus and not snapshot.absent,
        notes=(*(msg("This replaces `{request}`.", request=one) for one in replaced), *resolved.notes, *part.notes),
    )


def waits(policy: Policy, ceiling: Ceiling | None = None) -> Plan:
    """Return the plan of a policy that is checked when a framework is imported.

    Until then memory grows, also in programs that this process starts; where the ceiling allows no GPU, all are hidden.
    """
    grows = any(request.limited or request.grows for request in policy.memory)
    hidden = showing(()) if ceiling is not None and not ceiling.amounts else {}
    part = FrameworkPlan(environment={**({GROWTH: "true"} if grows else {}), **hidden})
    return Plan(asked=policy, settled=policy, tensorflow=part, judged=False)


def foreseen(plan: Plan, snapshot: Snapshot, process: ProcessState) -> Plan:
    """Return what a plan that still waits to be checked would be now; return any other plan as it is."""
    if plan.judged:
        return plan
    try:
        now = decide(plan.asked, snapshot, process, strict=False)
    except TooLate as error:
        return replace(plan, notes=(error.reason.without_next,))
    grown = Policy(tuple(r.growing(on=True) if isinstance(r, Memory) and r.limited else r for r in plan.asked))
    why = (
        now.unmet.without_next if now.unmet and now.asked != grown else None
    )  # else a note of the plan says what is missing
    short = [msg("`{policy}` cannot be had in full now.", policy=plan.asked), why]
    return replace(
        now,
        asked_of_all=plan.asked_of_all,
        parts=plan.parts,
        judged=False,
        configured=plan.configured,
        notes=(*([paragraph(short)] if now.unmet else ()), *now.notes),
    )


def renew(plan: Plan, snapshot: Snapshot, *, waits: bool) -> Plan:
    """Return the plan with the GPUs as they are now; if it waits and no longer fits, with a note on that."""
    now = {gpu.uuid: gpu for gpu in snapshot.gpus}
    devices = tuple(device._replace(gpu=now.get(device.gpu.uuid, device.gpu)) for device in plan.devices)
    found = fit.at_start(devices) if waits else []
    gone = [warning("it does not fit any more. {why}", why=fit.describe(found))] if found else []
    return replace(plan.doing(devices=devices), notes=(*plan.notes, *gone))


def least(policy: Policy, ceiling: Ceiling | None = None, *, frozen: bool = False) -> Plan:
    """Return the plan where nothing is known of the GPUs: memory grows, on the GPUs that the policy names.

    Args:
        policy: what is to be in force.
        ceiling: the ceiling, which nothing can be held under then: no GPU may be used.
        frozen: whether CUDA's list of GPUs is made, and cannot be changed any more.
    """
    if ceiling is not None:
        none = Policy((Visible(()),))
        note = msg(
            "The ceiling here is `{ceiling}`, and without figures of the GPUs only this holds it.", ceiling=ceiling
        )
        hidden = FrameworkPlan(environment=showing(()), show=frozen)
        return Plan(asked=none, settled=none, tensorflow=hidden, notes=(note,))
    choice = None if frozen else policy.choice
    refs = choice.refs if choice is not None else ()
    gpus = [Gpu(index=ref) if isinstance(ref, int) else Gpu(index=0, instance=0, uuid=ref) for ref in refs]
    shown = showing(gpus) if len({gpu.instance for gpu in gpus}) == 1 else {}
    kept = Policy((choice,)) if choice is not None and shown else NOTHING
    words = kept.then(GROWS)
    grown = FrameworkPlan(environment={**shown, GROWTH: "true"}, growth=True, grows=True)
    return Plan(asked=words, settled=words, tensorflow=grown, blind=True)


def _first_possible(
    policy: Policy,
    snapshot: Snapshot,
    process: ProcessState,
    owners: Callable[[], Mapping[int, str]],
    *,
    strict: bool,
    restart: bool | None = None,
    room: bool = True,
) -> Plan:
    """Return the plan for TensorFlow; the arguments, and what is raised, are as of `decide`."""
    again = process.asked.then(policy).asks_the_same(process.asked)
    begun = process.stage is Stage.READY and not (process.changed or process.forked or process.finds_no_gpu)
    if strict and again and begun:
        there = process.plan or Plan(asked=process.asked, settled=process.settled)
        return replace(renew(there, snapshot, waits=False), in_force=True)
    if process.fixed:
        raise refusal.too_late(policy, process, (lambda: beside(policy, snapshot, process)) if strict else None)
    why: Message | None = None
    for words in (policy,) if strict else easier(policy, snapshot, process):
        try:
            plan = draft(words, snapshot, process)
        except Refused as error:
            if strict:
                raise
            why = why or error.reason
            continue
        found = fit.at_start(plan.devices) if room else []
        if not found and strict and room:
            crowding = fit.crowding(plan.devices, grows=plan.grows)
            promised = promises.notes(plan.devices, process.promises, owners)
            return replace(plan, notes=(*plan.notes, *crowding, *promised))
        if not found:
            return replace(plan, unmet=None if process.finds_no_gpu else why)
        why = why or fit.describe(_seen_lacking(words, found, snapshot, process), snapshot.processes, owners())
        if strict:
            lead = "\nFits now:\n  " if restart is None else "\nFits after a restart:\n  "
            ways = similar(policy, found, plan.devices, snapshot, process)
            fitting = (way for way in ways if _fits(way, snapshot, process))
            raise Refused(why.with_tries(lead, fitting, restarts=bool(restart)))
    if snapshot.absent:
        return least(policy, frozen=process.frozen)
    return replace(least(policy, process.ceiling, frozen=process.frozen), unmet=why)


def _seen_lacking(
    words: Policy, found: Sequence[fit.Problem], snapshot: Snapshot, process: ProcessState
) -> Sequence[fit.Problem]:
    """Return the problems, for a pick also those of the GPUs that it has left out, as less is free there."""
    if words.choice is not None and words.choice.picks:
        with contextlib.suppress(Refused):
            return fit.at_start(draft(words.without([words.choice]), snapshot, process).devices) or found
    return found


def _fits(policy: Policy, snapshot: Snapshot, process: ProcessState) -> bool:
    """Return whether this policy fits without a warning, so that it can be asked for instead."""
    try:
        plan = draft(policy, snapshot, process)
    except Refused:
        return False
    passed = any(promises.passed(device, process.promises) for device in plan.devices)
    return not (passed or fit.at_start(plan.devices) or fit.crowding(plan.devices, grows=plan.grows))


def beside(policy: Policy, snapshot: Snapshot, process: ProcessState) -> Policy | None:
    """Return the policy, or the nearest, that fits in a new process beside this one; None if none does."""
    if not snapshot.gpus:
        return policy
    other = process.begun_anew()
    try:
        plan = draft(policy, snapshot, other)
    except Refused:
        return None
    found = fit.at_start(plan.devices)
    ways = similar(policy, found, plan.devices, snapshot, other) if found else ()
    return next((way for way in ways if _fits(way, snapshot, other)), None) if found else policy


def _with_parts(plan: Plan, parts: tuple[FrameworkPlan, ...], process: ProcessState) -> Plan:
    """Return a plan for TensorFlow with what is done about the others."""
    before = process.parts_in_force
    same = all(part.tells_the_same(before.get(part.framework)) for part in parts)
    return replace(plan, parts=parts, in_force=plan.in_force and same)


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


def _beside_keras(plan: Plan, process: ProcessState) -> Plan:
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
