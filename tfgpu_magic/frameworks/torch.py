"""PyTorch as one of the frameworks of this process: its stage and its figures; it takes no policy yet.

Source: PyTorch 2.13, `torch/cuda/memory.py`. Asking for the fraction wakes a PyTorch that has not started CUDA.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from tfgpu_magic.config import cuda
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.monitor.report import Figure


class Torch:
    """PyTorch as a `Framework`."""

    name = "PyTorch"
    # "CUDA out of memory. Tried to allocate 2.00 GiB."; "CUDA error: out of memory".
    out_of_memory = re.compile(r"CUDA (error: )?out of memory", re.IGNORECASE)
    runtime = None

    def stage(self) -> Stage:
        """Return its stage; while it is being imported, it counts as absent."""
        is_initialized = getattr(_cuda(), "is_initialized", None)
        if is_initialized is None:
            return Stage.ABSENT
        return Stage.READY if is_initialized() else Stage.IMPORTED

    def figures(self) -> dict[str, tuple[Figure, ...]]:
        """Return its figures by the UUID of each GPU that it has taken memory of; microseconds a GPU."""
        module = _cuda()
        found: dict[str, tuple[Figure, ...]] = {}
        for number, uuid in enumerate(cuda.shown()):  # PyTorch numbers them as CUDA does
            if reserved := int(module.memory_reserved(number)):
                allocated, peak = int(module.memory_allocated(number)), int(module.max_memory_allocated(number))
                found[uuid] = (
                    Figure(framework=self.name, what="allocated", size=allocated, used=True),
                    Figure(framework=self.name, what="peak", size=peak, peak=True),
                    Figure(framework=self.name, what="reserved", size=reserved, taken=True),
                    *(Figure(framework=self.name, what="limit", size=size) for size in _limit(module, number)),
                )
        return found


def _limit(module: Any, number: int) -> list[int]:
    """Return the bytes that its allocator may reserve of a GPU: one figure, or none where nothing limits it."""
    fraction_of = getattr(module, "get_per_process_memory_fraction", None)  # not in every release that is used
    fraction = 1.0 if fraction_of is None else float(fraction_of(number))
    return [int(fraction * module.get_device_properties(number).total_memory)] if fraction < 1 else []


def _cuda() -> Any:
    return getattr(sys.modules.get("torch"), "cuda", None)
