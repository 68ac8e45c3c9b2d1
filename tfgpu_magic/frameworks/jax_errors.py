"""What JAX's errors say of memory that a GPU did not have. Pure.

Source: what jaxlib 0.10.2 raises on a simulated machine, and jaxlib 0.4's texts: `bfc_allocator.cc`, `pjrt_client.cc`,
`se_gpu_pjrt_client.cc`, `cuda_dnn.cc`, `solver_handle_pool.cc`.
"""

from __future__ import annotations

import re

from tfgpu_magic.frameworks.shortage import Shortage, bytes_in, of_library

_NAME = "JAX"

# "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.00GiB."; before 0.5 "... Out of memory allocating
# 2147483648 bytes." and "... Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0".
_ARRAY = re.compile(
    r"RESOURCE_EXHAUSTED: (?:Out of memory (?:while trying to allocate|allocating)|Failed to allocate request for) "
    r"(?P<size>[\d.]+ ?[A-Za-z]+)(?: \((?P<exact>\d+)B\))?(?:.*?device ordinal (?P<gpu>\d+))?",
    re.DOTALL,
)
_ANY = re.compile(r"RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)")
_DRIVER = re.compile(r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|operation gpu\w+\(.*failed: out of memory")
_STATUS = re.compile(r"\b(?:INTERNAL|FAILED_PRECONDITION|UNKNOWN|NOT_FOUND|RESOURCE_EXHAUSTED): ")


def shortage(text: str) -> Shortage | None:
    """Return what an error's text says; None where it does not say, in JAX's words, that a GPU has no memory."""
    if found := _ARRAY.search(text):
        size = int(found["exact"]) if found["exact"] else bytes_in(found["size"].rstrip("."))
        return Shortage(framework=_NAME, size=size, device="" if found["gpu"] is None else f"cuda:{found['gpu']}")
    if _ANY.search(text):
        return Shortage(framework=_NAME)
    if _DRIVER.search(text) and "Bad StatusOr access" not in text:  # which is TensorFlow's
        return Shortage(framework=_NAME, kind="driver")
    return of_library(_NAME, text) if _STATUS.search(text) else None
