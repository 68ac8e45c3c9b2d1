"""What PyTorch's errors say of memory that a GPU did not have. Pure.

Source: PyTorch 1.13 to 2.13, `CUDACachingAllocator.cpp`, `CUDAException.cpp`, `cuda/Exceptions.h`.
"""

from __future__ import annotations

import re

from tfgpu_magic.frameworks.shortage import Shortage, bytes_in, of_library

_NAME = "PyTorch"

# "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which ..."; before 2.1
# "... Tried to allocate 2.00 GiB (GPU 0; 7.79 GiB total capacity; ...".
_TENSOR = re.compile(
    r"CUDA out of memory\.(?: Tried to allocate (?P<size>[\d.]+ ?\w+)\.?)?(?:\s*\(?GPU (?P<gpu>\d+)(?:;| has))?",
    re.IGNORECASE,
)
# "Of the allocated memory 5.50 GiB is allocated by PyTorch, and ..."; before 2.1 "... 5.50 GiB already allocated; ...".
_IN_USE = re.compile(r"(?P<size>[\d.]+ ?\w+) (?:is allocated by PyTorch|already allocated)")
# "CUDA error: out of memory": the driver's own answer, as when PyTorch starts CUDA.
_DRIVER = re.compile(r"CUDA error: out of memory|CUDA driver error: out of memory|cudaErrorMemoryAllocation")


def shortage(text: str) -> Shortage | None:
    """Return what an error's text says; None where it does not say, in PyTorch's words, that a GPU has no memory."""
    if found := _TENSOR.search(text):
        size = None if found["size"] is None else bytes_in(found["size"])
        in_use = bytes_in(told["size"]) if (told := _IN_USE.search(text)) else None
        device = "" if found["gpu"] is None else f"cuda:{found['gpu']}"
        return Shortage(framework=_NAME, size=size, device=device, in_use=in_use)
    if _DRIVER.search(text):
        return Shortage(framework=_NAME, kind="driver")
    if re.search(r"CUDA error: CU\w+_STATUS|cuDNN error:|valid cuDNN algorithm|find an engine|cusolver error", text):
        return of_library(_NAME, f"cuDNN {text}" if "find an engine" in text else text)
    return None
