"""What TensorFlow's errors say of memory that a GPU did not have. Pure.

Source: what TensorFlow 2.16 to 2.21 raises on a simulated machine, and its sources: `op_kernel.cc`, `copy_tensor.cc`,
`bfc_allocator.cc`; of CUDA's libraries what `cuda_dnn.cc` and `cuda_blas.cc` say.
"""

from __future__ import annotations

import re

from tfgpu_magic.frameworks.shortage import Shortage, bytes_in, of_library, size_of
from tfgpu_magic.monitor.report import TENSORFLOW

# "OOM when allocating tensor with shape[2,3] and type float on /job:localhost/.../device:GPU:0 by allocator GPU_0_bfc";
# of a graph's constant "OOM when allocating tensor of shape [2,3] and type float".
_TENSOR = re.compile(
    r"OOM when allocating tensor (?:with|of) shape ?\[(?P<shape>[\d, ]*)\]"
    r"(?: and type (?P<dtype>\w+))?(?: on (?P<on>\S+))?"
)
# "... {{function_node __wrapped__AddV2_device_/job:.../device:GPU:0}} failed to allocate memory [Op:AddV2]"
_NAMELESS = re.compile(r"\bfailed to allocate memory\b")
# "Failed copying input tensor from /job:.../CPU:0 to /job:.../GPU:0 in order to run _EagerConst: Dst tensor is not ..."
_COPY = re.compile(r"Dst tensor is not initialized")
# "Out of memory while trying to allocate 1073741824 bytes." of what XLA compiled.
_COMPILED = re.compile(r"Out of memory (?:while trying to allocate|allocating) (?P<size>[\d.]+ ?\w+)", re.IGNORECASE)
# "Bad StatusOr access: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory"
_DRIVER = re.compile(r"CUDA_ERROR_OUT_OF_MEMORY|Bad StatusOr access: RESOURCE_EXHAUSTED|failed call to cuInit:.*memory")

_DEVICE = re.compile(r"device:(GPU:\d+)")
_HOST = re.compile(r"by allocator (?:cpu|gpu_host|cuda_host)|DefaultCPUAllocator")


def shortage(text: str) -> Shortage | None:
    """Return what an error's text says; None where it does not say, in TensorFlow's words, that a GPU has no memory."""
    if _HOST.search(text):
        return None  # the machine's own memory
    if found := _TENSOR.search(text):
        shape, dtype = _shape(found["shape"]), found["dtype"] or ""
        on = _device(found["on"] or text)
        return Shortage(framework=TENSORFLOW, size=size_of(shape, dtype), shape=shape, dtype=dtype, device=on)
    if _NAMELESS.search(text) and ("[Op:" in text or "{{node" in text):
        return Shortage(framework=TENSORFLOW, device=_device(text))
    if _COPY.search(text):
        return Shortage(framework=TENSORFLOW, device=_device(text.partition(" to ")[2] or text))
    if _DRIVER.search(text):
        return Shortage(framework=TENSORFLOW, kind="driver")
    if (found := _COMPILED.search(text)) and "[Op:" in text:  # else they are JAX's words, too
        return Shortage(framework=TENSORFLOW, size=bytes_in(found["size"]), device=_device(text))
    return of_library(TENSORFLOW, text)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def _device(text: str) -> str:
    found = _DEVICE.search(text)
    return found[1] if found else ""
