"""What the words want of the environment, and what in it conflicts with them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tfgpu_magic.config import refusal, visible
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.process_state import ALLOCATOR, DEVICE_CAP, DEVICES, GROWTH, ORDER, ProcessState
from tfgpu_magic.config.resolver import LEAST_CAPABILITY, Resolved, is_old, is_skipped
from tfgpu_magic.units import MIB, rounded


def wanted(process: ProcessState, wish: Resolved) -> dict[str, str | None]:
    """The variables that the words decide, None to remove one. Words win over the environment."""
    variables: dict[str, str | None] = {}
    if wish.growth or (wish.growth is None and wish.cpus is not None and any(process.growth.values())):
        variables[GROWTH] = "true"  # also keeps what tf.config was told, which logical CPUs would switch off
    elif wish.growth is False and (_says_growth(wish) or process.outside.get(GROWTH) == "true"):
        variables[GROWTH] = "false"
    if wish.choice is not None and wish.choice.everything:
        variables |= {ORDER: "PCI_BUS_ID", DEVICES: None}
    elif wish.choice is not None:
        variables |= visible.variable(wish.seen, wish.there)
    return variables


def _says_growth(wish: Resolved) -> bool:
    """Whether words speak of growth itself, and not of limits that have it or have it not."""
    return wish.everywhere is not None and not wish.everywhere.limited


def conflicts(
    process: ProcessState, wish: Resolved, devices: Sequence[Device], variables: Mapping[str, str | None]
) -> Iterator[str]:
    """A note on each setting from elsewhere that has a say, or that the words overrule.

    Raises:
        Refused: it would undo what the words want.
    """
    skipped = [device.gpu for device in devices if is_skipped(device.gpu, wish.seen, process)]
    if skipped:
        raise refusal.skipped(skipped, wish.seen)
    if old := [device.gpu.label for device in devices if is_old(device.gpu, process)]:
        least = ".".join(map(str, LEAST_CAPABILITY))
        yield (
            f"GPU {', '.join(old)} is older than compute capability {least}, and TensorFlow's own wheels carry no code "
            "for that from 2.17 on: 2.16 and other builds may use it. If yours cannot, hide it with `visible`."
        )
    for name, value in variables.items():
        was = process.outside.get(name)
        if was is not None and value != was:
            now = "unset" if value is None else repr(value)
            yield f"{name} was {was!r}; in this process it is {now} now, as you asked."
    growth = process.outside.get(GROWTH, "true")
    if GROWTH not in variables and growth not in ("true", "false"):
        yield f"{GROWTH}={growth!r} does nothing: only true and false count."
    yield from _allocators(process, wish, devices)
    yield from _told_before(process, wish, variables)
    if wish.memory and process.keras is not None:
        yield (
            f"Keras' backend is {process.keras} here, and %tf_gpu sets TensorFlow's memory only: nothing limits what "
            f"{process.keras} takes for Keras. `visible` and `pick` hide GPUs from {process.keras} too."
        )
    if process.neighbour is not None:
        yield (
            f"{process.neighbour} already uses a GPU in this {process.host}; "
            "what it takes comes on top of TensorFlow's limits."
        )


def _allocators(process: ProcessState, wish: Resolved, devices: Sequence[Device]) -> Iterator[str]:
    """What other ways to allocate make of the words."""
    if process.environment.get(ALLOCATOR) == "cuda_malloc_async":
        if any(device.limits for device in devices):
            raise refusal.async_allocator()
        if wish.memory:
            yield f"{ALLOCATOR}=cuda_malloc_async is set: memory grows as CUDA's own pool does."
    cap = process.environment.get(DEVICE_CAP, "")
    if cap.isdigit() and wish.memory:
        most = max((sum(device.limits) for device in devices), default=0)
        if most > int(cap) * MIB:
            raise refusal.capped(most, cap)
        yield f"{DEVICE_CAP}={cap} is set, and caps what TensorFlow takes of each GPU at {rounded(int(cap) * MIB)}."


def _told_before(process: ProcessState, wish: Resolved, variables: Mapping[str, str | None]) -> Iterator[str]:
    """What `tf.config` was told before, and what becomes of it."""
    grows = [process.growth.get(str(gpu.uuid)) for gpu in wish.seen]
    if not any(grows):
        return
    if wish.cpus is not None and variables.get(GROWTH) == "true":
        yield f"Logical CPUs would switch off what set_memory_growth was told; {GROWTH} keeps it on."
    elif wish.growth is False:
        yield "This switches off what set_memory_growth was told: a limit without --grow is taken at once."
    elif wish.growth is None and not all(grows):
        raise refusal.growth_on_some()
