"""The nearest safe plan that can be enforced, for a policy that no user is there to change. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from tfgpu_magic.errors import Refused, TooLate
from tfgpu_magic.ground.message import Message, in_a_row, msg
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.policy import fit, refusal
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.policy.plan import Plan, draft
from tfgpu_magic.policy.policy import NOTHING, Choice, Memory, Policy, reference
from tfgpu_magic.policy.process_state import DEVICES, GROWTH, ProcessState, showing
from tfgpu_magic.policy.requests.growth import Growth
from tfgpu_magic.policy.requests.visible import Visible
from tfgpu_magic.policy.resolver import find, is_skipped, lowered, seen_without_words

if TYPE_CHECKING:
    from tfgpu_magic.policy.ceiling import Ceiling

GROWS = Policy((Growth(),))
"""The least policy, always possible: TensorFlow takes what it needs, and not all that there is."""


def waits(policy: Policy, ceiling: Ceiling | None = None) -> Plan:
    """Return the plan of a policy that is checked when a framework is imported.

    Until then memory grows, also in programs that this process starts; where the ceiling allows no GPU, all are hidden.
    """
    grows = any(request.limited or request.grows for request in policy.memory)
    hidden = showing(()) if ceiling is not None and not ceiling.amounts else {}
    environment = {**({GROWTH: "true"} if grows else {}), **hidden}
    return Plan(asked=policy, settled=policy, environment=environment, judged=False)


def of_others(policy: Policy) -> Policy:
    """Return what a configured policy asks of the frameworks beside TensorFlow."""
    return Policy(tuple(request for request in policy.memory if request.of_any_framework))


def nearest(
    policy: Policy,
    snapshot: Snapshot,
    process: ProcessState,
    owners: Callable[[], Mapping[int, str]] = dict,
    told: Callable[[Refused], Message] = attrgetter("reason"),
) -> tuple[Plan, Message | None]:
    """Return the plan nearest to a policy that can be enforced; there always is one.

    A GPU that is lost or full is left out. A limit for which memory is missing becomes a cap that is grown into, and a
    request that is not possible in any size becomes growth. What passes the ceiling is lowered to it.

    Args:
        policy: what is to be in force in this process, whatever was asked of it before.
        snapshot: the machine's GPUs now.
        process: this process now.
        owners: returns the name of each process by its pid; called only when memory is missing.
        told: returns what is said of a refusal; by default the lines to say instead, too.

    Returns:
        The plan, and the reason why it is not just what was asked; None where it is.

    Raises:
        TooLate: nothing can be set in this process any more.
    """
    process = process._replace(asked=NOTHING, settled=NOTHING)
    if process.fixed:
        raise refusal.too_late(policy, process)
    why: Message | None = None
    for words in _steps(policy, snapshot, process):
        try:
            plan = draft(words, snapshot, process)
        except Refused as error:
            why = why or told(error)
            continue
        found = fit.at_start(plan.devices)
        if not found:
            return plan, None if process.finds_no_gpu else why
        why = why or fit.describe(found, snapshot.processes, owners())
    ceiling = None if snapshot.absent else process.ceiling
    return least(policy, ceiling, frozen=process.frozen), None if snapshot.absent else why


def foreseen(plan: Plan, snapshot: Snapshot, process: ProcessState) -> Plan:
    """Return what a plan that still waits to be checked would be now; return any other plan as it is."""
    if plan.judged:
        return plan
    try:
        now, why = nearest(plan.asked, snapshot, process, told=attrgetter("reason.alone"))
    except TooLate as error:
        return replace(plan, notes=(error.reason.alone,))
    short = in_a_row((msg("`{policy}` cannot be had in full now.", policy=plan.asked), why))
    notes = (short, *now.notes) if why else now.notes
    return replace(now, notes=notes, judged=False, configured=plan.configured, others=plan.others)


def least(policy: Policy, ceiling: Ceiling | None = None, *, frozen: bool = False) -> Plan:
    """Return the plan where nothing is known of the GPUs: memory grows, on the GPUs that the policy names.

    Args:
        policy: what is to be in force.
        ceiling: the most that the process may take of each GPU. Nobody could hold growth to it, so no GPU is used.
        frozen: whether CUDA's list is made already, so that no other GPUs can be seen.
    """
    if ceiling is not None:
        none = Policy((Visible(()),))
        note = msg(
            "The ceiling here is `{ceiling}`, and without figures of the GPUs only this holds it.", ceiling=ceiling
        )
        return Plan(asked=none, settled=none, environment=showing(()), show=frozen, notes=(note,))
    choice = None if frozen else policy.choice
    refs = choice.refs if choice is not None else ()
    gpus = [Gpu(index=ref) if isinstance(ref, int) else Gpu(index=0, instance=0, uuid=ref) for ref in refs]
    shown = showing(gpus) if len({gpu.instance for gpu in gpus}) == 1 else {}
    kept = Policy((choice,)) if choice is not None and shown else NOTHING
    words = kept.then(GROWS)
    return Plan(asked=words, settled=words, environment={**shown, GROWTH: "true"}, growth=True, grows=True, blind=True)


def _steps(policy: Policy, snapshot: Snapshot, process: ProcessState) -> Iterator[Policy]:
    """Give the policy, and then others, each further from it and easier to enforce than the one before."""
    yield policy
    asked, wanted, cpus = policy.by_nature()
    if not snapshot.gpus:
        if snapshot.absent and cpus:
            yield Policy((Growth(), *cpus))
        return
    for choice, there in _choices(wanted, snapshot, process):
        for memory in easier(asked, there, process):
            yield Policy((*choice, *memory, *cpus))


def easier(asked: Sequence[Memory], there: Sequence[Gpu], process: ProcessState) -> Iterator[Sequence[Memory]]:
    """Give what is asked of these GPUs under the ceiling, then the same as caps, and then growth."""
    kept = [request for request in asked if request.gpu is None or find(request.gpu, there) in there]
    kept = list(lowered(Policy(tuple(kept)), there, process).memory)
    if kept or not asked:
        yield kept
        yield [request.growing(on=True) if request.limited else request for request in kept]
    yield [Growth()]


def _choices(
    wanted: Choice | None, snapshot: Snapshot, process: ProcessState
) -> Iterator[tuple[Sequence[Choice], Sequence[Gpu]]]:
    """Give choices without the GPUs that are lost or full, each with the GPUs that may be seen then."""
    unknown = process.shown is None and DEVICES in process.outside  # it may be any GPU, as a scheduler has chosen
    if wanted is None and unknown:
        yield (), snapshot.gpus
        return
    seen = _seen(wanted, snapshot, process)
    fine = [gpu for gpu in seen if _is_fine(gpu, seen, process)]
    if wanted is None and len(fine) == len(seen):
        yield (), fine
    refs = list(map(reference, fine))
    for choice in (wanted or Visible(())).easier(refs):
        yield [choice], fine


def _seen(choice: Choice | None, snapshot: Snapshot, process: ProcessState) -> Sequence[Gpu]:
    """Return the GPUs that a choice is about."""
    if choice is not None and choice.everything:
        return [gpu for gpu in snapshot.gpus if gpu.instance is None]
    if choice is not None and not choice.picks:
        return [gpu for ref in choice.refs if isinstance(gpu := find(ref, snapshot.gpus), Gpu)]
    return seen_without_words(snapshot, process)


def _is_fine(gpu: Gpu, seen: Sequence[Gpu], process: ProcessState) -> bool:
    """Tell whether TensorFlow's first op is possible there, as far as is known."""
    full = gpu.free is not None and gpu.free < context_bytes(gpu.total or 0)
    return not (gpu.lost or gpu.mig or full or is_skipped(gpu, seen, process))
