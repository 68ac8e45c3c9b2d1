"""A stand-in for PyTorch with CUDA, which does not run on a simulated machine: what is asked of `torch.cuda`."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType, SimpleNamespace


def torch(
    *,
    allocated: Sequence[int],
    reserved: Sequence[int],
    fractions: Sequence[float] | None = None,
    total: int = 0,
    awake: bool = True,
) -> ModuleType:
    """Return a module that has allocated and reserved so much of each GPU.

    Args:
        allocated: bytes, by GPU; the peaks are twice that.
        reserved: bytes, by GPU.
        fractions: what limits it, by GPU; None for a release that does not tell.
        total: bytes of each GPU.
        awake: whether it has started CUDA.
    """
    taken = list(reserved)
    answers = {
        "is_initialized": lambda: awake,
        "memory_stats_as_nested_dict": lambda device: {
            "allocated_bytes": {"all": {"current": allocated[device], "peak": 2 * allocated[device]}},
            "reserved_bytes": {"all": {"current": taken[device], "peak": reserved[device]}},
        },
        "reset_peak_memory_stats": lambda device: None,  # noqa: ARG005
        "empty_cache": lambda: taken.__setitem__(slice(None), allocated),
        "device_count": lambda: len(taken),
        "get_device_properties": lambda _number: SimpleNamespace(total_memory=total),
    }
    if fractions is not None:
        answers["get_per_process_memory_fraction"] = lambda number: fractions[number]
    module = ModuleType("torch")
    module.cuda = SimpleNamespace(**answers)  # type: ignore[attr-defined]
    return module
