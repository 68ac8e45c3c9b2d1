"""A stand-in for PyTorch with CUDA, which does not run on a simulated machine: what is asked of `torch.cuda`.

One GPU is the current one, and some have a context. To 2.9, reading or setting a fraction calls `SetDevice`, which
makes a context and changes the current GPU (`NativeCachingAllocator::setMemoryFraction`, `getMemoryFraction`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace


def torch(
    *,
    allocated: Sequence[int],
    reserved: Sequence[int],
    fractions: Sequence[float] = (),
    total: int = 0,
    awake: bool = True,
    version: str = "2.13.0",
) -> ModuleType:
    """Return a module that has allocated and reserved so much of each GPU.

    Args:
        allocated: bytes, by GPU; the peaks are twice that.
        reserved: bytes, by GPU.
        fractions: what limits it, by GPU; without any, nothing does.
        total: bytes of each GPU.
        awake: whether it has started CUDA.
        version: its release, which has `current` and `contexts` for a test to read.
    """
    taken = list(reserved)
    module = ModuleType("torch")
    current, contexts = [0], [number for number, size in enumerate(reserved) if size]
    moves = tuple(map(int, version.split(".")[:2])) < (2, 10)
    values = list(fractions) or [1.0] * len(taken)

    def set_device(number: int) -> None:
        current[0] = number
        if number not in contexts:
            contexts.append(number)

    def read(number: int) -> float:
        if moves:
            set_device(number)
        return values[number]

    def write(fraction: float, number: int) -> None:
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        if moves:
            set_device(number)
        values[number] = fraction

    @contextlib.contextmanager
    def device(number: int) -> Iterator[None]:
        before, current[0] = current[0], number
        try:
            yield
        finally:
            current[0] = before

    answers: dict[str, Callable[..., object]] = {
        "is_initialized": lambda: awake,
        "memory_stats_as_nested_dict": lambda device: {
            "allocated_bytes": {"all": {"current": allocated[device], "peak": 2 * allocated[device]}},
            "reserved_bytes": {"all": {"current": taken[device], "peak": reserved[device]}},
        },
        "reset_peak_memory_stats": lambda device: None,  # noqa: ARG005
        "empty_cache": lambda: taken.__setitem__(slice(None), allocated),
        "device_count": lambda: len(taken),
        "get_device_properties": lambda _number: SimpleNamespace(total_memory=total),
        "get_per_process_memory_fraction": read,
        "set_per_process_memory_fraction": write,
        "current_device": lambda: current[0],
        "device": device,
    }
    module.cuda = SimpleNamespace(**answers)  # type: ignore[attr-defined]
    module.__version__ = version  # type: ignore[attr-defined]
    module.current, module.contexts, module.fractions = current, contexts, values  # type: ignore[attr-defined]
    return module
