"""What the environment says beside the words, what of it they overrule, and what each variable is to be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tfgpu_magic.config import refusal, visible
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Growth
from tfgpu_magic.config.state import ALLOCATOR, DEVICE_CAP, DEVICES, GROWTH, ORDER, Kernel
from tfgpu_magic.config.wish import Wish, is_skipped


def meddlers(kernel: Kernel, devices: Sequence[Device], wish: Wish) -> Iterator[str]:
    """A note on each thing that would have a say in what TensorFlow takes.

    Raises:
        Refused: it would undo what the words want.
    """
    skipped = [device.gpu for device in devices if is_skipped(device.gpu, wish.seen, kernel)]
    if skipped:
        raise refusal.skipped(skipped, wish.seen)
    if kernel.environment.get(ALLOCATOR) == "cuda_malloc_async":
        if any(device.limits for device in devices):
            raise refusal.async_allocator()
        if wish.memory:
            yield f"{ALLOCATOR}=cuda_malloc_async is set: memory grows as CUDA's own pool does."
    if DEVICE_CAP in kernel.environment and wish.memory:
        cap = kernel.environment[DEVICE_CAP]
        yield f"{DEVICE_CAP}={cap} is set outside, and caps every GPU that has no limit of its own."
    if kernel.neighbour is not None:
        yield f"{kernel.neighbour} already uses a GPU in this kernel; no limit of TensorFlow's counts what it takes."


def wanted(kernel: Kernel, wish: Wish) -> dict[str, str | None]:
    """What each variable that we own is to be; None removes it. Words win over the environment."""
    outside = kernel.outside.get(GROWTH)
    keeps = wish.growth is None and wish.cpus is not None and kernel.grows
    growth = outside
    if wish.growth or keeps:
        growth = "true"
    elif wish.growth is not None and (outside == "true" or wish.everywhere == Growth(on=False)):
        growth = "false"
    environment: dict[str, str | None] = {GROWTH: growth}
    if not kernel.frozen:
        chosen = visible.variable(wish.seen) if wish.chosen else kernel.outside
        environment |= {name: chosen.get(name) for name in (ORDER, DEVICES)}
    return environment


def overruled(kernel: Kernel, wish: Wish, environment: Mapping[str, str | None]) -> Iterator[str]:
    """A note on each setting from elsewhere that the words overrule, or that TensorFlow ignores."""
    for name, value in environment.items():
        was = kernel.outside.get(name)
        if was is not None and value != was:
            yield f"{name} was {was!r} outside; in this process it is {value!r} now, because you asked."
        elif name == GROWTH and value not in (None, "true", "false"):
            yield f"{name}={value!r} does nothing: only true and false count."
    if kernel.grows and environment[GROWTH] == "true" and wish.cpus is not None:
        yield f"Logical CPUs would switch off what set_memory_growth was told; {GROWTH} keeps it on."
    elif kernel.grows and environment[GROWTH] != "true" and wish.memory:
        yield "This switches off what set_memory_growth was told: a limit without --grow is taken at once."
