"""Makes every plan: of what a user asks, here, after a restart or for another program; and of what is in force.

`plan` and `apply` are for everybody; `enforcement` enforces what they make, and what is configured. `answer` and
`would_do` show a plan.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from tfgpu_magic.claims.allocation import key
from tfgpu_magic.claims.ledger import LEDGER
from tfgpu_magic.engine import enforcement, other_processes, room
from tfgpu_magic.engine.enforcement import look_well
from tfgpu_magic.errors import Refused, Room, TooLate
from tfgpu_magic.frameworks import NAMES
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.frameworks.tensorflow.devices import current_stage
from tfgpu_magic.ground import TENSORFLOW, phrases, units
from tfgpu_magic.ground.answer import Document, grid, headline
from tfgpu_magic.ground.message import Message, format_list, join_lines, msg
from tfgpu_magic.ground.process_kind import noun, process_kind
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.machine.see import look
from tfgpu_magic.policy import parser, promises
from tfgpu_magic.policy.decide import Frameworks, beside, decide, foreseen, renew, waits
from tfgpu_magic.policy.memory import capacity
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.policy import Policy
from tfgpu_magic.policy.process_state import ProcessState, Stage
from tfgpu_magic.policy.requests.growth import GROWS

_Names: TypeAlias = "Callable[[], Mapping[int, str]]"

_See: TypeAlias = "Callable[[], Snapshot]"

_HEADS = (">Device", "<TensorFlow", "<Takes", ">Of", ">Free now")


def plan(
    policy: str | Policy, *, frameworks: Frameworks = "tensorflow", see: Callable[[], Snapshot] = look_well
) -> Plan:
    """Return what applying a policy would do, without doing it.

    Args:
        policy: words such as ``limit 2GiB``, or a policy made of them.
        frameworks: whether it is for TensorFlow, or for all: PyTorch and JAX too.
        see: returns a snapshot of the GPUs; by default one taken now.

    Returns:
        The plan, GPU by GPU.

    Raises:
        PolicyError: the words are no policy.
        Refused: the policy cannot be enforced here and now.
    """
    asked = parser.parse(policy) if isinstance(policy, str) else policy
    try:
        return _plan_now(asked, frameworks, see())
    except TooLate as error:
        raise _in_reach(error, asked, frameworks, see) from None


def apply(
    policy: str | Policy,
    *,
    frameworks: Frameworks = "tensorflow",
    see: Callable[[], Snapshot] = look_well,
    wait: float | str | None = None,
) -> Plan:
    """Set this process's TensorFlow up, whole or not at all; before or after its import, before its first op.

    Where TensorFlow is not imported yet, what only its API can set waits for the import.

    Args:
        policy: words such as ``limit 2GiB``, or a policy made of them.
        frameworks: whether it is for TensorFlow, or for all: PyTorch and JAX too.
        see: returns a snapshot of the GPUs; by default one taken now.
        wait: how long to wait at the most if other processes hold too much, in seconds or as text: ``"30m"``. Your
            own processes that wait for the same GPU go on in the order in which they came. None does not wait.

    Returns:
        The plan that is in force, or waits for TensorFlow's import.

    Raises:
        PolicyError: the words are no policy, or `wait` is no time.
        Refused: the policy cannot be enforced, or there was no room for it in time; nothing was changed.
    """
    asked = parser.parse(policy) if isinstance(policy, str) else policy
    return in_time(lambda: _apply(asked, frameworks, see), asked, wait, frameworks, see)


def in_time(
    attempt: Callable[[], Plan], asked: Policy, wait: float | str | None, frameworks: Frameworks, see: _See = look_well
) -> Plan:
    """Return the plan that `attempt` makes of a policy: now, or if `wait` is given, once others leave room for it.

    The further arguments, and what is raised, are as of `apply`.
    """
    try:
        if wait is None:
            return attempt()
        by, snapshot = _wait(asked, wait), see()  # a mistake is told also if there is room
        process = _with_frameworks(frameworks, RUNTIME.observe(snapshot.gpus))
        gpus = attainable(asked, frameworks, snapshot, process)
        if not gpus:
            return attempt()
        return room.wait_for(attempt, lambda: _plan_now(asked, frameworks, see(), waits=True), gpus, by)
    except TooLate as error:
        raise (_in_reach(error, asked, frameworks, see) if wait is None else error) from None  # a restart waits too
    except Refused as error:
        if error.retryable:
            error.args = (error.reason.with_wait(asked),)
        raise


def _wait(asked: Policy, limit: float | str) -> room.Wait:
    return room.Wait(units.parse_seconds(limit), any_gpu=asked.choice is not None and asked.choice.picks)


def _in_reach(late: TooLate, asked: Policy, frameworks: Frameworks, see: _See) -> Refused:
    """Return the error for a policy for which it is too late; if a restart would not do, that for the nearest one."""
    try:
        foresee(str(asked), frameworks, see=see)
    except Refused as refused:
        ways = refused.reason.ways
        for way in refused.tries[:1]:
            try:
                plan(way.words, frameworks=frameworks, see=see)
            except TooLate as error:
                ways = error.reason.ways
        why = join_lines([late.reason.without_next, refused.reason.without_next])
        return Refused(why.with_next(ways), verdict=None)
    return late


def _apply(asked: Policy, frameworks: Frameworks, see: _See) -> Plan:
    """Do what `apply` does, at once."""
    snapshot = see()
    process = _with_frameworks(frameworks, RUNTIME.observe(snapshot.gpus))
    try:
        with other_processes.decided(process, snapshot, partial(_plan, asked, frameworks, snapshot)) as made:
            if not made.in_force:
                enforcement.enforce(made)
            elif not made.asked_of_all.asks_the_same(current().asked_of_all):
                RUNTIME.set_other_policy(made.asked_of_all)  # none of them is installed yet
            if made.asked_of_all.requests or RUNTIME.ceiling:
                enforcement.hold_imports()  # also those that will be installed later in this process
    except Refused as error:
        LEDGER.note_wanted(error.retryable)
        raise
    return made


def foresee(policy: str, frameworks: Frameworks = "tensorflow", *, see: _See = look_well, wait: str = "") -> Plan:
    """Return the plan for this kernel after a restart, when what it holds now is free again.

    Args:
        policy: words such as ``limit 2GiB``.
        frameworks: whether it is for TensorFlow, or for all: PyTorch and JAX too.
        see: returns a snapshot of the GPUs; by default one taken now.
        wait: how long to wait at the most if other processes hold too much; an empty text does not wait.

    Raises:
        PolicyError: the words are no policy.
        Refused: they cannot be enforced in a new kernel either, or there was no room for them in time.
    """
    from tfgpu_magic.frameworks import self_report  # only a restart needs it

    now, asked = see(), parser.parse(policy)
    process, intended = anew(now), enforcement.policy_of(current())
    gpus = partial(attainable, asked, frameworks, now, _with_frameworks(frameworks, process))
    if wait:
        attempt = partial(foresee, policy, frameworks, see=see)
        return room.wait_for(attempt, attempt, gpus(), _wait(asked, wait))
    then = self_report.after_exit(now)
    if intended is not current().asked or not current().judged:  # a configured policy, as far as it is possible by then
        possible = decide(intended, then, process, strict=False)
        process = process._replace(asked=possible.asked, settled=possible.settled)
    process = other_processes.observed(then, _with_frameworks(frameworks, process))
    names = partial(other_processes.names, then, process.promises)
    try:
        return decide(asked, then, process, names, frameworks=frameworks, restart=process_kind() == "kernel")
    except Refused as error:
        error.retryable = gpus()
        raise


def nearest(policy: Policy) -> list[Policy]:
    """Return the nearest policy to one that has no room, that has some in a new process; nothing if none has."""
    snapshot = look_well()
    found = beside(policy, snapshot, other_processes.observed(snapshot))
    return [] if found is None or found == policy else [found]


def sketch(policy: str, frameworks: Frameworks = "tensorflow") -> Plan:
    """Return the plan for a program that starts anew, whatever this process does and whatever is free; for code.

    Raises:
        PolicyError: the words are no policy.
        Refused: they cannot be enforced together, or name what is not there.
    """
    snapshot, asked = look_well(), parser.parse(policy)
    process = other_processes.observed(snapshot, _with_frameworks(frameworks, anew(snapshot)))
    process = _with_what_waits(process, snapshot)
    return decide(asked, snapshot, process, frameworks=frameworks, room=False)  # it names nobody


def current() -> Plan:
    """Return the plan in force or waiting; where nothing was asked, one that does nothing."""
    return RUNTIME.current


def decided(snapshot: Snapshot | None = None) -> Plan:
    """Return the current plan; where it waits to be checked, what it would be with these GPUs, or with those now."""
    plan = current()
    if plan.judged:
        return plan
    snapshot = look() if snapshot is None else snapshot
    return foreseen(plan, snapshot, other_processes.observed(snapshot))


def waiting() -> Plan:
    """Return the plan in force or waiting, with the GPUs as they are now, and a note if it no longer fits."""
    plan = decided()
    if not (plan.judged and plan.devices):
        return plan
    return renew(plan, look(), waits=current_stage() is not Stage.READY)


def inherited(snapshot: Snapshot | None = None) -> Policy:
    """Return the policy for a process that this one starts; on a machine without a GPU, it names none.

    Where nothing was asked, it is what holds the ceiling.
    """
    if RUNTIME.plan is None and RUNTIME.ceiling is not None:
        snapshot = look() if snapshot is None else snapshot
        return foreseen(waits(GROWS), snapshot, anew(snapshot)).settled
    plan = decided(snapshot)
    choice = plan.settled.choice
    if choice is None or not (plan.blind and (look() if snapshot is None else snapshot).absent):
        return plan.settled
    return plan.settled.without([choice])


def order() -> tuple[str, ...]:
    """Return the UUIDs of the GPUs in the order in which a new program lists them; none if the order is unknown."""
    return RUNTIME.observe(look().gpus).shown or ()


def anew(snapshot: Snapshot) -> ProcessState:
    """Return the state of a new process with this one's policy, in which TensorFlow is not imported yet."""
    return RUNTIME.observe(snapshot.gpus).begun_anew()


def _undone(plan: Plan) -> str:
    """Return that an applied plan is not in force, and why; empty where it is."""
    changed = RUNTIME.changed_settings() if plan.judged and plan.asked.requests and not plan.acts_on_nothing else ()
    return f"`{plan.asked}` was asked for, and is not in force: {', '.join(changed)}." if changed else ""


def standing(plan: Plan, frameworks: Frameworks = "tensorflow") -> str:
    """Return one sentence on what an applied plan does: at TensorFlow's stage now, or for every framework."""
    if undone := _undone(plan):
        return undone
    if frameworks == "all":
        return str(enforcement.every_framework().standing(plan))
    stage = current_stage()
    if not plan.judged:
        return f"`{plan.asked}` takes effect when TensorFlow is imported, and is checked against the GPUs again then."
    if not plan.asked.requests:
        takes_all = (
            "No policy is set: TensorFlow's own defaults hold, and it takes nearly all that is free of each GPU it "
            "uses, and a CUDA context on each it sees."
        )
        return takes_all if plan.devices else "No policy is set: TensorFlow's own defaults hold."
    if plan.acts_on_nothing:
        return f"`{plan.asked}` has no effect here: TensorFlow sees no GPU."
    if plan.in_force:
        return f"`{plan.asked}` is in force already."
    if stage is Stage.READY:
        return f"`{plan.asked}` is in force."
    if stage is not Stage.ABSENT:
        return f"`{plan.asked}` is in force from TensorFlow's first op on."
    if plan.needs_tensorflow:
        return f"`{plan.asked}` takes effect when TensorFlow is imported."
    return f"`{plan.asked}` is in force, also for programs that are started from here."


_said_of_workers = False


def of_workers(policy: str, plan: Plan, frameworks: Frameworks) -> Iterator[Message]:
    """Yield a note, once, on the programs that a user's new limit does not reach."""
    global _said_of_workers
    limits = Policy(tuple(request for request in parser.parse(policy).memory if request.limited))
    alone = frameworks == "tensorflow"
    names = [TENSORFLOW] if alone else enforcement.every_framework().not_inherited(plan)
    if names and limits.requests and plan.limited and not _said_of_workers:
        _said_of_workers = True
        yield msg(
            "Nothing limits {names} in the programs and spawned workers that this {here} starts: call `{call}` in "
            "them, use `IsolatedExecutor`, or write `!tfgpu run`. A process that is forked after TensorFlow's import "
            "can use no GPU.",
            names=format_list(names),
            here=noun(),
            call=f'tfgpu_magic.apply("{limits}")' if alone else f'tfgpu_magic.apply("{limits}", frameworks="all")',
        )


def answer(plan: Plan, standing: str) -> Document:
    """Return a plan as an answer.

    Args:
        plan: the plan, GPU by GPU.
        standing: its status, one sentence.
    """
    simulated = [phrases.SIMULATED] if any(device.gpu.simulated for device in plan.devices) else []
    return Document(headline(standing), grid(_HEADS, _rows(plan), indent=" "), *plan.notes, *simulated)


def would_do(plan: Plan, policy: str, frameworks: Frameworks, lead: str = "") -> Document:
    """Return what is shown of a plan that is not to be applied.

    Args:
        plan: the plan.
        policy: the words that it was made for.
        frameworks: for which frameworks they are.
        lead: what is said before.
    """
    all_have = frameworks == "all" and plan.asked_of_all.requests
    words = enforcement.every_framework().of_all(plan.asked, plan.asked_of_all) if all_have else plan.asked
    nothing = plan.acts_on_nothing and not any(part.limits for part in plan.parts or ())
    does = "would have no effect here: TensorFlow sees no GPU." if nothing else "would do this:"
    return answer(plan, f"{lead}`{str(words) or policy}` {does}")


def _rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return a row for each GPU that TensorFlow sees, and one for logical CPUs."""
    rows: list[tuple[str, ...]] = []
    number = 0
    for device in plan.devices:
        names = [f"GPU:{number + n}" for n in range(max(len(device.limits), 1))]
        number += len(names)
        gpu = device.gpu
        rows.append((f"GPU {gpu.label}", " ".join(names), plan.takes(device), capacity(gpu), rounded(gpu.free)))
    if (cpus := plan.cpus) is not None:
        rows.append(("CPU", " ".join(f"CPU:{n}" for n in range(cpus)), "logical CPUs", "", ""))
    return rows


def _plan_now(asked: Policy, frameworks: Frameworks, snapshot: Snapshot, *, waits: bool = False) -> Plan:
    """Return the plan for words of now. If it `waits`, what others claim and have not taken yet is no room."""
    process = other_processes.observed(snapshot, _with_frameworks(frameworks, RUNTIME.observe(snapshot.gpus)))
    names = partial(other_processes.names, snapshot, process.promises)
    made = _plan(asked, frameworks, snapshot, process, names)
    if waits and (passed := promises.notes(made.devices, process.promises, names)):
        raise Refused(join_lines(passed), retryable=attainable(asked, frameworks, snapshot, process))
    return made


def _plan(asked: Policy, frameworks: Frameworks, snapshot: Snapshot, process: ProcessState, names: _Names) -> Plan:
    """Return the plan for words of now; a refusal says on which GPUs others' giving way would change it."""
    try:
        return decide(asked, snapshot, _with_what_waits(process, snapshot), names, frameworks=frameworks)
    except Refused as error:
        if not isinstance(error, TooLate):
            error.retryable = attainable(asked, frameworks, snapshot, process)
        raise


def attainable(asked: Policy, frameworks: Frameworks, snapshot: Snapshot, process: ProcessState) -> Room:
    """Return the GPUs on which a policy could be had if other processes held nothing, as `Refused.retryable`.

    They are none if the policy is in force already.
    """
    found, alone = dict[str, int | None](), process._replace(claims={}, promises=())
    gpus = [gpu if gpu.free is None else gpu._replace(free=gpu.usable) for gpu in snapshot.gpus]
    with contextlib.suppress(Refused):
        while True:
            there = snapshot._replace(gpus=tuple(gpus))
            # Nobody reads its refusal, and so no names.
            would = decide(asked, there, _with_what_waits(alone, there), dict, frameworks=frameworks)
            new = {key(one.gpu): sum(one.limits) or None for one in would.devices if key(one.gpu) not in found}
            if would.in_force or not new:
                break
            found |= new
            gpus = [gpu._replace(free=0) if key(gpu) in new else gpu for gpu in gpus]  # a pick has others to choose
    return found


def _with_what_waits(process: ProcessState, snapshot: Snapshot) -> ProcessState:
    """Return the state with a policy that waits to be checked replaced by what can be enforced of it now."""
    if RUNTIME.plan is None or RUNTIME.plan.judged:
        return process
    now = foreseen(RUNTIME.plan, snapshot, process)
    return process._replace(asked=now.asked, settled=now.settled)


def _with_frameworks(frameworks: Frameworks, process: ProcessState) -> ProcessState:
    """Load the frameworks beside TensorFlow only where one of them matters, and return the state with them.

    Args:
        frameworks: for which frameworks the words are.
        process: this process, or a new one.
    """
    imported = NAMES.keys() & sys.modules.keys() - {"tensorflow"}
    if frameworks == "all" or imported or process.asked_of_all.requests or process.ceiling is not None:
        process = process._replace(frameworks=enforcement.every_framework().states(process))
    return process
