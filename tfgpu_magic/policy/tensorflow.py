"""What is done about TensorFlow for a policy: its variables and settings, and what the user should know. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tfgpu_magic.ground.message import MAGIC, Line, Message, msg, paragraph
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.ground.units import MIB, rounded
from tfgpu_magic.policy import fit, refusal
from tfgpu_magic.policy.memory import capacity, context_bytes
from tfgpu_magic.policy.plan import FrameworkPlan, in_words
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
from tfgpu_magic.policy.resolver import Resolved, is_skipped


def planned(resolved: Resolved, snapshot: Snapshot, process: ProcessState) -> FrameworkPlan:
    """Return what is done about TensorFlow for a resolved policy.

    Raises:
        Refused: a setting that is not ours would undo the policy.
    """
    variables = _variables(process, resolved, snapshot)
    part = FrameworkPlan(
        devices=tuple(resolved.devices),
        growth=resolved.growth,
        grows=_grows(resolved, process, variables),
        releases=variables.get(ALLOCATOR) == ASYNC,
        environment=variables,
        show=resolved.choice is not None and process.frozen,
        cpus=resolved.cpus,
    )
    notes = (
        *_conflicts(process, resolved, part, snapshot),
        *_on_the_rest(process, resolved, part.devices, snapshot),
        *_no_effect(snapshot, process, variables),
        *_maybe_broken(snapshot, process),
        *_old(process),
    )
    return replace(part, notes=notes)


def _variables(process: ProcessState, resolved: Resolved, snapshot: Snapshot) -> dict[str, str | None]:
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
        variables |= showing(resolved.seen, snapshot.gpus)
    return variables


def _grows(resolved: Resolved, process: ProcessState, variables: Mapping[str, str | None]) -> bool:
    """Return whether pools will grow: by the variable if it is exactly true or false, else as nothing was asked."""
    growth = variables.get(GROWTH, process.outside.get(GROWTH))
    if growth in ("true", "false") or resolved.growth is not None:  # which switches `tf.config`'s off
        return growth == "true"
    return any(process.growth.values()) and not any(process.limits.values())


def _sets_growth(resolved: Resolved) -> bool:
    """Return whether the policy sets growth itself, and not only limits with or without it."""
    return any(not request.limited for request in resolved.memory)


def _conflicts(process: ProcessState, resolved: Resolved, part: FrameworkPlan, snapshot: Snapshot) -> Iterator[Message]:
    """Yield a note on each setting that is not from `%tf_gpu` and has an effect, or that the policy overrules.

    Raises:
        Refused: a setting would undo the policy.
    """
    variables = part.environment
    skipped = [device.gpu for device in part.devices if is_skipped(device.gpu, resolved.seen, process)]
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
    yield from _allocators(process, resolved, part)
    yield from _set_before(process, resolved, part)
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


def _allocators(process: ProcessState, resolved: Resolved, part: FrameworkPlan) -> Iterator[Message]:
    """Yield notes on how other allocators follow the policy."""
    if part.releases:
        if part.devices:
            yield paragraph((_goes_back(process), NO_LIMIT))
        if DEVICE_CAP in process.environment:
            yield msg("{variable} is set, and does nothing with --release.", variable=DEVICE_CAP)
        return
    if process.outside.get(ALLOCATOR) == ASYNC:
        if part.limits:
            raise refusal.async_allocator()
        if resolved.memory:
            yield msg("{set} is set: memory grows as CUDA's own pool does.", set=f"{ALLOCATOR}={ASYNC}")
    cap = process.environment.get(DEVICE_CAP, "")
    if cap.isdigit() and resolved.memory:
        most = max((sum(device.limits) for device in part.devices), default=0)
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


def _set_before(process: ProcessState, resolved: Resolved, part: FrameworkPlan) -> Iterator[Message]:
    """Yield notes on limits and growth that other code has set through `tf.config`, and what becomes of them."""
    for device in part.devices if resolved.growth is not None else ():
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
    if resolved.cpus is not None and part.environment.get(GROWTH) == "true":
        yield msg(
            "Logical CPUs would switch off what set_memory_growth was told; {variable} keeps it on.", variable=GROWTH
        )
    elif resolved.growth is False:
        yield msg("This switches off what set_memory_growth was told: a limit without --grow is taken at once.")
    elif resolved.growth is None and not all(grows):
        raise refusal.growth_on_some()


def _hidden(process: ProcessState, resolved: Resolved, snapshot: Snapshot) -> Iterator[Message]:
    """Yield notes on hidden GPUs: hidden by CUDA's variable from every framework, later from TensorFlow alone."""
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
    process: ProcessState, resolved: Resolved, devices: Sequence[fit.Device], snapshot: Snapshot
) -> Iterator[Message]:
    """Yield notes on the GPUs that no request is about, and on what is not taken at once."""
    yield from _hidden(process, resolved, snapshot)
    unlimited = [device.gpu.label for device in devices if not device.limits]
    if resolved.memory and all(request.gpu is not None for request in resolved.memory) and unlimited:
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
        yield paragraph(("So much is not free now.", fit.describe(far)))


def _no_effect(snapshot: Snapshot, process: ProcessState, variables: Mapping[str, str | None]) -> Iterator[Message]:
    """Yield notes on where the policy has no effect: a TensorFlow without a GPU, a variable that came too late."""
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
    """Yield a note if an op may have failed on a full GPU and its error was caught: TensorFlow keeps no record."""
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
    """Yield a note if TensorFlow is too old."""
    if process.old:
        yield msg(
            "TensorFlow {version} is older than 2.16, the oldest that tfgpu_magic was tested with.",
            version=process.old,
        )
