"""What PyTorch's allocator says of this process's GPUs, if PyTorch is here and uses them. It wakes nothing."""

from __future__ import annotations

import sys

from tfgpu_magic.config import cuda
from tfgpu_magic.monitor.report import Torch


def figures() -> dict[str, Torch]:
    """PyTorch's own figures, by the UUID of each GPU that it has taken memory of. Microseconds a GPU."""
    torch = sys.modules.get("torch")
    module = getattr(torch, "cuda", None)
    is_initialized = getattr(module, "is_initialized", None)  # None while it is being imported
    if module is None or is_initialized is None or not is_initialized():
        return {}
    found: dict[str, Torch] = {}
    for number, uuid in enumerate(cuda.shown()):  # PyTorch numbers them as CUDA does
        if reserved := int(module.memory_reserved(number)):
            found[uuid] = Torch(allocated=int(module.memory_allocated(number)), reserved=reserved)
    return found
