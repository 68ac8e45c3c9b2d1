"""From a policy, the GPUs and the stage to a plan, or to a refusal. Pure: the machine is not queried or changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.errors import Refused
from tfgpu_magic.ground.message import MAGIC, Line, Message, in_a_row, msg, warning
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.ground.units import MIB, rounded
from tfgpu_magic.policy import fit, promises, refusal
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.memory import capacity, context_bytes
from tfgpu_magic.policy.policy import NOTHING, Policy, reference
from tfgpu_magic.policy.process_state import (
    ALLOCATOR,
    ASYNC,
    DEVICE_CAP,
    DEVICES,
    GROWTH,
    ORDER,
    ProcessState,
    Stage,
    predict_shown,
    showing,
)
from tfgpu_magic.policy.requests.growth import NO_LIMIT
from tfgpu_magic.policy.requests.visible import Visible
from tfgpu_magic.policy.resolver import Resolved, is_skipped, lowered, resolve

if TYPE_CHECKING:
    from tfgpu_magic.policy.framework_plan import FrameworkPlan


class Others(NamedTuple):
    """What the frameworks beside TensorFlow are asked, in force or waiting, and what is done about each.

    Attributes:
        asked: what they are asked.
        parts: what is done about each of those that are installed.
        told: whether they are told this; else what they were told before stays, whatever it is.
    """

    asked: Policy = NOTHING
    parts: tuple[FrameworkPlan, ...] = ()
    told: bool = True


_NOT_TOLD = Others(told=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What applying a policy will do, all of it checked.

    Attributes:
        asked: the whole policy that counts, the new requests included.
        settled: the same with each choice of GPUs replaced by the GPUs that were chosen.
        environment: the variables that the policy decides for TensorFlow; None removes one.
        devices: the GPUs that TensorFlow will see, in its order.
        show: whether to set TensorFlow's visible devices as well, because CUDA no longer reads its variable.
        cpus: how many logical CPUs; None leaves TensorFlow's one.
        growth: whether pools grow; None where nothing was asked about memory.
        grows: whether they will, by what was asked or by what other code or the environment has set.
        in_force: it is in force already, and there is nothing to do.
        judged: whether it was checked; else the policy waits, and is checked when a framework is imported.
        blind: whether the GPUs are unknown, though there may be some.
        notes: what else the user should know.
        configured: whether an administrator asks for it, and not the user.
        others: what holds for the frameworks beside TensorFlow.
    """

    asked: Policy = NOTHING
    settled: Policy = NOTHING
    environment: Mapping[str, str | None] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    show: bool = False
    cpus: int | None = None
    growth: bool | None = None
    grows: bool = False
    in_force: bool = False
    judged: bool = True
    blind: bool = False
    notes: tuple[Message, ...] = ()
    configured: bool = False
    others: Others = _NOT_TOLD

    @property
    def variables(self) -> dict[str, str | None]:
        """The variables for every framework; None removes one."""
        theirs = {name: value for part in self.others.parts for name, value in part.environment.items()}
        return {**self.environment, **theirs}

    @property
    def limited(self) -> bool:
        """Whether the policy gives any GPU logical GPUs, which only TensorFlow's own API can make."""
        return any(device.limits and device.words for device in self.devices)

    @property
    def releases(self) -> bool:
        """Whether memory that TensorFlow does not use can go back to the driver while it lives."""
        return self.environment.get(ALLOCATOR) == ASYNC

    def takes(self, device: Device) -> str:
        """Return what TensorFlow takes of one of the devices, as a short text."""
        return in_words(device.limits, grows=self.grows, releases=self.releases)

    @property
    def hidden(self) -> bool:
        """Whether TensorFlow's own API keeps it from all GPUs, which others may use, as beside Keras' backends."""
        return self.show and not self.devices

    def hiding_all(self) -> Plan:
        """Return the plan with all GPUs kept from TensorFlow, and not from the other frameworks."""
        return replace(self, devices=(), show=True, growth=None)

    @property
    def acts_on_nothing(self) -> bool:
        """Whether the requests about memory find no GPU, and nothing else was asked."""
        return self.growth is not None and not self.devices and self.cpus is None and not self.blind

    @property
    def needs_tensorflow(self) -> bool:
        """Whether the environment alone is not enough, so that TensorFlow's own API is needed."""
        return not self.judged or self.limited or self.cpus is not None or self.show


def in_words(limits: Sequence[int], *, grows: bool, releases: bool = False) -> str:
    """Return what is taken of a GPU as a short text: ``limit 2 GiB``, ``split 2 × 1 GiB, grows``, ``growth``."""
    if not limits:
        if grows:
            return "growth, gives back" if releases else "growth"
        return "all that is free"
    if len(limits) == 1:
        return _growing(f"limit {rounded(limits[0])}", grows=grows)
    alike = len(set(limits)) == 1
    parts = f"{len(limits)} × {rounded(limits[0])}" if alike else " + ".join(map(rounded, limits))
    return _growing(f"split {parts}", grows=grows)


def _growing(words: str, *, grows: bool) -> str:
    return f"{words}, grows" if grows else words


def make(
    policy: Policy,
    snapshot: Snapshot,
    process: ProcessState,
    owners: Callable[[], Mapping[int, str]] = dict,
    *,
    restart: bool | None = None,
    room: bool = True,
) -> Plan:
    """Decide what a policy will do, all of it before any of it is done.

    Args:
        policy: what is asked now; what was asked before and still counts is in `process`.
        snapshot: the machine's GPUs now.
        process: this process now.
        owners: returns the name of each process by its pid; called only when memory is missing, or promised to others.
        restart: if the plan is for the time after a restart, whether a line can bring one about; else None.
        room: whether there has to be memory for it now.

    Returns:
        The plan. With `Plan.in_force`, nothing is left to do.

    Raises:
        Refused: it cannot be enforced; the error says why, for every GPU, and what can be done instead.
        TooLate: a new process could enforce it.
    """
    again = process.asked.then(policy).asks_the_same(process.asked)
    if process.stage is Stage.READY and again and not (process.changed or process.forked or process.finds_no_gpu):
        return Plan(asked=process.asked, settled=process.settled, in_force=True)
    if process.fixed:
        raise refusal.too_late(policy, process, lambda: _beside(policy, snapshot, process))
    plan = draft(policy, snapshot, process)
    if not room:
        return plan
    found = fit.at_start(plan.devices)
    if found:
        ways = _ways(policy, plan, found, snapshot, process)
        lead = "\nFits now:\n  " if restart is None else "\nFits after a restart:\n  "
        why = fit.describe(found, snapshot.processes, owners())
        raise Refused(why.offering(lead, ways, restarts=bool(restart)))
    return noted(plan, process, owners)


def _ways(
    policy: Policy, plan: Plan, found: Sequence[fit.Problem], snapshot: Snapshot, process: ProcessState
) -> Iterator[Policy]:
    """Give the policies to ask for instead of one that does not fit, the nearest first."""
    room = {gpu.label: promises.figures(process.promises, gpu).clear for gpu in snapshot.gpus}
    ways = fit.ways(policy, found, plan.devices, snapshot, room)
    return (way for way in ways if _fits(way, snapshot, process))


def _beside(policy: Policy, snapshot: Snapshot, process: ProcessState) -> Policy | None:
    """Return the policy, or the nearest, that fits in a new process beside this one; None if none does."""
    if not snapshot.gpus:
        return policy
    other = process.begun_anew()
    try:
        plan = draft(policy, snapshot, other)
    except Refused:
        return None
    found = fit.at_start(plan.devices)
    return next(_ways(policy, plan, found, snapshot, other), None) if found else policy


def noted(plan: Plan, process: ProcessState, owners: Callable[[], Mapping[int, str]]) -> Plan:
    """Return a plan that fits, with notes on what it leaves to CUDA's libraries and to other processes."""
    crowding = fit.crowding(plan.devices, grows=plan.grows)
    promised = promises.notes(plan.devices, process.promises, owners)
    return replace(plan, notes=(*plan.notes, *crowding, *promised))


def draft(policy: Policy, snapshot: Snapshot, process: ProcessState) -> Plan:
    """Return the plan for a process in which it is not too late, without a check that there is memory for it.

    Raises:
        Refused: the requests cannot be enforced together, or name what is not there.
    """
    if process.ceiling is not None:  # what was asked before it was lowered
        asked, settled = (lowered(one, snapshot.gpus, process) for one in (process.asked, process.settled))
        process = process._replace(asked=asked, settled=settled)
    resolved = resolve(process.settled, policy, snapshot, process)
    devices = resolved.devices()
    variables = _variables(process, resolved)
    none = Policy((resolved.choice,) if resolved.choice is not None and resolved.hidden else ())
    asked = process.asked.without(resolved.dropped).then(policy).then(none)
    settled = process.settled.without(resolved.dropped).then(policy).then(none)
    settled = settled.seeing(list(map(reference, resolved.seen)))
    return Plan(
        asked=asked,
        settled=settled,
        environment=variables,
        devices=devices,
        show=resolved.choice is not None and process.frozen,
        cpus=resolved.cpus,
        growth=resolved.growth,
        grows=_grows(resolved, process, variables),
        blind=not snapshot.gpus and not snapshot.absent,
        notes=(
            *(
                msg("This replaces `{request}`.", request=gone)
                for gone in process.asked
                if gone not in (*asked, *resolved.dropped, *policy)
            ),
            *resolved.notes,
            *_conflicts(process, resolved, devices, variables, snapshot),
            *_on_the_rest(process, resolved, devices, snapshot),
            *_no_effect(snapshot, process, variables),
            *_maybe_broken(snapshot, process),
            *_old(process),
        ),
    )


def _variables(process: ProcessState, resolved: Resolved) -> dict[str, str | None]:
    """Return the variables that the policy decides, None to remove one. The policy wins over the environment."""
    variables: dict[str, str | None] = {}
    if resolved.growth or (resolved.growth is None and resolved.cpus is not None and any(process.growth.values())):
        variables[GROWTH] = "true"  # also keeps growth from tf.config, which logical CPUs would switch off
    elif resolved.growth is False and (_sets_growth(resolved) or process.outside.get(GROWTH) == "true"):
        variables[GROWTH] = "false"
    if any(request.releases for request in resolved.memory):
        variables[ALLOCATOR] = ASYNC
    if resolved.choice is not None and resolved.choice.everything:
        variables |= {ORDER: "PCI_BUS_ID", DEVICES: None}
    elif resolved.choice is not None:
        variables |= showing(resolved.seen, resolved.there)
    return variables


def _grows(resolved: Resolved, process: ProcessState, variables: Mapping[str, str | None]) -> bool:
    """Tell whether pools will grow: by the variable if it is exactly true or false, else as nothing was asked."""
    growth = variables.get(GROWTH, process.outside.get(GROWTH))
    if growth in ("true", "false") or resolved.growth is not None:  # which switches `tf.config`'s off
        return growth == "true"
    return any(process.growth.values()) and not any(process.limits.values())


def _sets_growth(resolved: Resolved) -> bool:
    """Tell whether the policy sets growth itself, and not only limits with or without it."""
    return resolved.everywhere is not None and not resolved.everywhere.limited


def _conflicts(
    process: ProcessState,
    resolved: Resolved,
    devices: Sequence[Device],
    variables: Mapping[str, str | None],
    snapshot: Snapshot,
) -> Iterator[Message]:
    """Give a note on each setting that is not from `%tf_gpu` and has an effect, or that the policy overrules.

    Raises:
        Refused: a setting would undo the policy.
    """
    skipped = [device.gpu for device in devices if is_skipped(device.gpu, resolved.seen, process)]
    if skipped:
        raise refusal.skipped(skipped, resolved.seen)
    for name, value in variables.items():
        was = process.outside.get(name)
        if was is not None and value != was:
            now = "unset" if value is None else repr(value)
            yield msg(
                "{name} was {was}; in this process it is {now} now, as you asked.", name=name, was=repr(was), now=now
            )
    hidden = DEVICES in process.outside and process.shown is not None and not (process.shown or process.frozen)
    if hidden and resolved.choice is None and snapshot.gpus:
        yield msg("{variable} hides every GPU.", variable=f"{DEVICES}={process.outside[DEVICES]!r}")
    growth = process.outside.get(GROWTH, "true")
    if GROWTH not in variables and growth not in ("true", "false"):
        yield msg("{variable} does nothing: only true and false count.", variable=f"{GROWTH}={growth!r}")
    yield from _allocators(process, resolved, devices, variables)
    yield from _set_before(process, resolved, devices, variables)
    if resolved.memory and process.keras is not None:
        yield msg(
            "Keras' backend is {backend} here, and {magic} sets TensorFlow's memory only. `%gpu` sets what {backend} "
            "takes for Keras too.",
            magic=MAGIC,
            backend=process.keras,
        )
    if process.neighbour is not None:
        yield msg(
            "{library} already uses a GPU in this {here}; what it takes comes on top of TensorFlow's limits.",
            library=process.neighbour or "Another library",
            here=process.host,
        )


def _allocators(
    process: ProcessState, resolved: Resolved, devices: Sequence[Device], variables: Mapping[str, str | None]
) -> Iterator[Message]:
    """Give notes on what other allocators make of the policy."""
    if variables.get(ALLOCATOR) == ASYNC:
        if devices:
            yield in_a_row((_goes_back(process), NO_LIMIT))
        if DEVICE_CAP in process.environment:
            yield msg("{variable} is set, and does nothing with --release.", variable=DEVICE_CAP)
        return
    if process.outside.get(ALLOCATOR) == ASYNC:
        if any(device.limits for device in devices):
            raise refusal.async_allocator()
        if resolved.memory:
            yield msg("{set} is set: memory grows as CUDA's own pool does.", set=f"{ALLOCATOR}={ASYNC}")
    cap = process.environment.get(DEVICE_CAP, "")
    if cap.isdigit() and resolved.memory:
        most = max((sum(device.limits) for device in devices), default=0)
        if most > int(cap) * MIB:
            raise refusal.capped(most, cap)
        yield msg(
            "{set} is set, and caps what TensorFlow takes of each GPU at {size}.",
            set=f"{DEVICE_CAP}={cap}",
            size=rounded(int(cap) * MIB),
        )


def _goes_back(process: ProcessState) -> Message:
    """Return a sentence on when memory goes back to the driver."""
    if process.host in ("kernel", "session"):
        return msg(
            "What TensorFlow does not use goes back to the driver once no cell has run for a while "
            "(`c.TfGpuMagics.release_after`), or at once by `{line}`.",
            line=Line("free"),
        )
    return msg("What TensorFlow does not use goes back to the driver by `tfgpu_magic.give_back()`.")


def _set_before(
    process: ProcessState, resolved: Resolved, devices: Sequence[Device], variables: Mapping[str, str | None]
) -> Iterator[Message]:
    """Give notes on limits and growth that other code has set through `tf.config`, and what becomes of them."""
    for device in devices if resolved.growth is not None else ():
        theirs = process.limits.get(str(device.gpu.uuid), ())
        if theirs not in ((), device.limits):
            yield msg(
                "This undoes what set_logical_device_configuration was told for GPU {gpu} ({limit}).",
                gpu=device.gpu.label,
                limit=in_words(theirs, grows=False),
            )
    grows = [process.growth.get(str(gpu.uuid)) for gpu in resolved.seen]
    if not any(grows):
        return
    if resolved.cpus is not None and variables.get(GROWTH) == "true":
        yield msg(
            "Logical CPUs would switch off what set_memory_growth was told; {variable} keeps it on.", variable=GROWTH
        )
    elif resolved.growth is False:
        yield msg("This switches off what set_memory_growth was told: a limit without --grow is taken at once.")
    elif resolved.growth is None and not all(grows):
        raise refusal.growth_on_some()


def _hidden(process: ProcessState, resolved: Resolved, snapshot: Snapshot) -> Iterator[Message]:
    """Give notes on the GPUs that are hidden: by CUDA's variable from every framework, later from TensorFlow alone."""
    away = [gpu for gpu in snapshot.gpus if gpu not in resolved.seen and not gpu.mig]
    if resolved.choice is None or process.finds_no_gpu:
        return
    own = [gpu for gpu in away if process.frozen and gpu.uuid in (process.shown or ())]
    if own:
        yield msg("Hidden from TensorFlow: GPU {gpus}.", gpus=", ".join(gpu.label for gpu in own))
    if everybodys := [gpu.label for gpu in away if gpu not in own]:
        yield msg(
            "Hidden from this {here}, PyTorch and JAX included: GPU {gpus}.",
            here="notebook" if process.host == "kernel" else process.host,
            gpus=", ".join(everybodys),
        )
    if away and resolved.choice == Visible(()) and not (process.frozen or resolved.hidden):
        yield msg(
            "If PyTorch or JAX is to use the GPU, call `{call}` instead.",
            call='tf.config.set_visible_devices([], "GPU")',
        )


def _on_the_rest(
    process: ProcessState, resolved: Resolved, devices: Sequence[Device], snapshot: Snapshot
) -> Iterator[Message]:
    """Give notes on the GPUs that no request is about, and on what is not taken at once."""
    yield from _hidden(process, resolved, snapshot)
    unlimited = [device.gpu.label for device in devices if not device.limits]
    if resolved.by_gpu and resolved.everywhere is None and unlimited:
        yield msg(
            "No limit is set for GPU {gpus}: {what}. To hide a GPU, name the others with `visible`.",
            gpus=", ".join(unlimited),
            what="TensorFlow takes memory there as it needs it"
            if resolved.growth
            else "TensorFlow takes all that is free there",
        )
    blind = [device.gpu.label for device in devices if device.words is not None and device.gpu.free is None]
    if blind:
        yield msg(
            "What is free on GPU {gpus} is unknown here, so whether it fits was not checked.", gpus=", ".join(blind)
        )
    held = [device.gpu for device in devices if device.words is not None and device.gpu.limit is not None]
    for most in dict.fromkeys(map(capacity, held)):
        labels = ", ".join(gpu.label for gpu in held if capacity(gpu) == most)
        yield msg(
            "GPU {gpus}: a share is of {size}, which the driver allows all processes of this cgroup together.",
            gpus=labels,
            size=most,
        )
    total = sum(sum(device.limits) for device in devices)
    if total and resolved.growth and not unlimited:
        yield msg(
            "Nothing is taken at the start; memory grows up to {size} in all, as far as that much is free then.",
            size=rounded(total),
        )
    if far := fit.out_of_reach(devices):
        yield in_a_row(("So much is not free now.", fit.describe(far)))


def _no_effect(snapshot: Snapshot, process: ProcessState, variables: Mapping[str, str | None]) -> Iterator[Message]:
    """Give notes on what the policy has no effect on: a TensorFlow without a GPU, and a variable that came too late."""
    if process.finds_no_gpu:
        yield refusal.finds_no_gpu(gpu.label for gpu in snapshot.gpus if gpu.uuid in process.skipped)
    if DEVICES not in variables and (late := too_late(process, snapshot.gpus)):
        yield late


def too_late(process: ProcessState, gpus: Sequence[Gpu]) -> Message | None:
    """Return a sentence on the variable that hides GPUs, if it was set after CUDA had read it; else None."""
    given = process.outside.get(DEVICES)
    is_read = not process.frozen or process.forked or given is None or given != process.environment.get(DEVICES)
    if is_read or predict_shown(gpus, process.outside) in (None, process.shown):
        return None
    return msg(
        "{variable} has no effect: it was set after the list of GPUs was made. Write `{line}` instead{flag}.",
        variable=f"{DEVICES}={given!r}",
        line=Line("visible"),
        flag=", with --restart" if process.stage is Stage.READY else "",
    )


def _maybe_broken(snapshot: Snapshot, process: ProcessState) -> Iterator[Message]:
    """Give a note where an op may have failed on a full GPU, and its error was caught: TensorFlow keeps no record."""
    shown = [gpu for gpu in snapshot.gpus if gpu.uuid in (process.shown or ()) and gpu.free is not None]
    full = [gpu.label for gpu in shown if (gpu.free or 0) < context_bytes(gpu.total or 0)]
    if process.stage is Stage.LISTED and full:
        yield msg(
            "GPU {gpus} is full. If an operation has failed for that in this {here} already, restart it: TensorFlow "
            "may hang at the next one.",
            gpus=", ".join(full),
            here=process.host,
        )


def _old(process: ProcessState) -> Iterator[Message]:
    """Give a note on a TensorFlow that is too old."""
    if process.old:
        yield msg(
            "TensorFlow {version} is older than 2.16, the oldest that tfgpu_magic was tested with.",
            version=process.old,
        )


def renew(plan: Plan, snapshot: Snapshot, *, waits: bool) -> Plan:
    """Return the plan with the GPUs as they are now; if it waits and no longer fits, with a note on that."""
    now = {gpu.uuid: gpu for gpu in snapshot.gpus}
    devices = tuple(device._replace(gpu=now.get(device.gpu.uuid, device.gpu)) for device in plan.devices)
    found = fit.at_start(devices) if waits else []
    gone = [warning("it does not fit any more. {why}", why=fit.describe(found))] if found else []
    return replace(plan, devices=devices, notes=(*plan.notes, *gone))


def _fits(policy: Policy, snapshot: Snapshot, process: ProcessState) -> bool:
    """Tell whether this policy fits without a warning, so that it can be asked for instead."""
    try:
        plan = draft(policy, snapshot, process)
    except Refused:
        return False
    passed = any(promises.passed(device, process.promises) for device in plan.devices)
    return not (passed or fit.at_start(plan.devices) or fit.crowding(plan.devices, grows=plan.grows))
