"""The variables that a policy sets, and the settings in the environment that conflict with it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tfgpu_magic.policy import refusal, visible
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.process_state import ALLOCATOR, ASYNC, DEVICE_CAP, DEVICES, GROWTH, ORDER, ProcessState
from tfgpu_magic.policy.requests.growth import NO_LIMIT
from tfgpu_magic.policy.resolver import Resolved, is_skipped
from tfgpu_magic.units import MIB, rounded


def wanted(process: ProcessState, resolved: Resolved) -> dict[str, str | None]:
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
        variables |= visible.variable(resolved.seen, resolved.there)
    return variables


def _sets_growth(resolved: Resolved) -> bool:
    """Tell whether the policy sets growth itself, and not only limits with or without it."""
    return resolved.everywhere is not None and not resolved.everywhere.limited


def conflicts(
    process: ProcessState, resolved: Resolved, devices: Sequence[Device], variables: Mapping[str, str | None]
) -> Iterator[str]:
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
            yield f"{name} was {was!r}; in this process it is {now} now, as you asked."
    growth = process.outside.get(GROWTH, "true")
    if GROWTH not in variables and growth not in ("true", "false"):
        yield f"{GROWTH}={growth!r} does nothing: only true and false count."
    yield from _allocators(process, resolved, devices, variables)
    yield from _growth_before(process, resolved, variables)
    if resolved.memory and process.keras is not None:
        yield (
            f"Keras' backend is {process.keras} here, and %tf_gpu sets TensorFlow's memory only. `%gpu` sets what "
            f"{process.keras} takes for Keras too."
        )
    if process.neighbour is not None:
        yield (
            f"{process.neighbour} already uses a GPU in this {process.host}; "
            "what it takes comes on top of TensorFlow's limits."
        )


def _allocators(
    process: ProcessState, resolved: Resolved, devices: Sequence[Device], variables: Mapping[str, str | None]
) -> Iterator[str]:
    """Give notes on what other allocators make of the policy."""
    if variables.get(ALLOCATOR) == ASYNC:
        if devices:
            yield f"{_goes_back(process)} {NO_LIMIT}"
        if DEVICE_CAP in process.environment:
            yield f"{DEVICE_CAP} is set, and does nothing with --release."
        return
    if process.outside.get(ALLOCATOR) == ASYNC:
        if any(device.limits for device in devices):
            raise refusal.async_allocator()
        if resolved.memory:
            yield f"{ALLOCATOR}={ASYNC} is set: memory grows as CUDA's own pool does."
    cap = process.environment.get(DEVICE_CAP, "")
    if cap.isdigit() and resolved.memory:
        most = max((sum(device.limits) for device in devices), default=0)
        if most > int(cap) * MIB:
            raise refusal.capped(most, cap)
        yield f"{DEVICE_CAP}={cap} is set, and caps what TensorFlow takes of each GPU at {rounded(int(cap) * MIB)}."


def _goes_back(process: ProcessState) -> str:
    """Return a sentence on when memory goes back to the driver."""
    what = "What TensorFlow does not use goes back to the driver"
    if process.host in ("kernel", "session"):
        return f"{what} once no cell has run for a while (`c.TfGpuMagics.release_after`), or at once by `%tf_gpu free`."
    return f"{what} by `tfgpu_magic.give_back()`."


def _growth_before(process: ProcessState, resolved: Resolved, variables: Mapping[str, str | None]) -> Iterator[str]:
    """Give a note on growth that other code has set through `tf.config`, and what becomes of it."""
    grows = [process.growth.get(str(gpu.uuid)) for gpu in resolved.seen]
    if not any(grows):
        return
    if resolved.cpus is not None and variables.get(GROWTH) == "true":
        yield f"Logical CPUs would switch off what set_memory_growth was told; {GROWTH} keeps it on."
    elif resolved.growth is False:
        yield "This switches off what set_memory_growth was told: a limit without --grow is taken at once."
    elif resolved.growth is None and not all(grows):
        raise refusal.growth_on_some()
