"""TensorFlow as one of the frameworks of this process; what is set in it is in `devices`."""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, ClassVar

from tfgpu_magic.frameworks import cuda
from tfgpu_magic.frameworks.base import Framework
from tfgpu_magic.frameworks.counters import Counters
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.frameworks.shortage import Shortage, parse_library_error, parse_size, size_of
from tfgpu_magic.frameworks.tensorflow import arrays, devices
from tfgpu_magic.frameworks.tensorflow.devices import context_class, current_stage, eager_context
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.policy.process_state import ALLOCATOR, ASYNC, GROWTH, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfgpu_magic.frameworks.array import Array
    from tfgpu_magic.ground.report import LogicalGpu
    from tfgpu_magic.policy.plan import FrameworkPlan

# Errors: what TensorFlow 2.16 to 2.21 raises on a simulated machine, and its sources: `op_kernel.cc`, `copy_tensor.cc`,
# `bfc_allocator.cc`; of CUDA's libraries what `cuda_dnn.cc` and `cuda_blas.cc` say.
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
_DRIVER = re.compile(r"CUDA_ERROR_OUT_OF_MEMORY|access: RESOURCE_EXHAUSTED|(?:call to cuInit:|cudaSetDevice).*memory")

_DEVICE = re.compile(r"device:(GPU:\d+)")
_HOST = re.compile(r"device:CPU:\d+ by allocator|by allocator (?:cpu|gpu_host|cuda_host)|DefaultCPUAllocator")


@functools.cache
def _name(dev: str) -> str:
    """Return a logical GPU's name from any way to write it, as ``/device:GPU:0``."""
    number = re.search(r"GPU:(\d+)$", dev)
    return f"GPU:{int(number[1])}" if number else "GPU:0"  # TensorFlow takes `GPU:*` where there is only one


class TensorFlow(Framework):
    """TensorFlow as a `Framework`; its limits are in its policy, and its reserve under `growth --release` is CUDA's."""

    name = TENSORFLOW
    # "CUDA_ERROR_OUT_OF_MEMORY", "Status: out of memory", "OOM when allocating tensor with shape[...]", "failed to
    # allocate memory [Op:AddV2]", "Dst tensor is not initialized."
    out_of_memory = re.compile(
        r"out.of.memory|\bOOM\b|failed to allocate memory\b.*\[(Op:|\[)|Dst tensor is not initialized",
        re.IGNORECASE | re.DOTALL,
    )
    words = ("in use", "", "")
    resets = True
    module = "tensorflow"
    grows_by: ClassVar = {GROWTH: "true"}
    # Source: TensorFlow 2.16 to 2.21, `eager/context.py` and `framework/policy.py`.
    counters = Counters(lambda: [context_class()], "get_memory_info", "reset_memory_stats", lambda _, dev: _name(dev))

    def __init__(self) -> None:
        self._logical: Mapping[str, tuple[LogicalGpu, ...]] = {}
        self._releases = False

    @property
    def since(self) -> str | None:
        """The cell that made it use a GPU, as a phrase, if the cells are watched."""
        return devices.since

    @since.setter
    def since(self, phrase: str | None) -> None:
        devices.since = phrase

    def stage(self) -> Stage:
        """Return its stage."""
        return current_stage()

    def shortage(self, text: str) -> Shortage | None:
        """Return what an error's text says, in TensorFlow's words, of memory that was missing; None where nothing."""
        if _HOST.search(text):
            return None  # the machine's own memory
        if found := _TENSOR.search(text):
            shape, dtype = _shape(found["shape"]), found["dtype"] or ""
            on = _device(found["on"] or text)
            return Shortage(framework=self.name, size=size_of(shape, dtype), shape=shape, dtype=dtype, device=on)
        if _NAMELESS.search(text) and ("[Op:" in text or "{{node" in text):
            return Shortage(framework=self.name, device=_device(text))
        if _COPY.search(text):
            return Shortage(framework=self.name, device=_device(text.partition(" to ")[2] or text))
        if _DRIVER.search(text):
            return Shortage(framework=self.name, kind="driver")
        if (found := _COMPILED.search(text)) and "[Op:" in text:  # else they are JAX's words, too
            return Shortage(framework=self.name, size=parse_size(found["size"]), device=_device(text))
        return parse_library_error(self.name, text)

    def pools(self) -> list[Pool]:
        """Return the pool of each logical GPU; it never tells the largest piece."""
        there = devices.logical()
        if there is not self._logical:  # it has chosen its allocator by then
            self._logical, self._releases = there, bool(there) and self.gives_back
        if not there:  # most cells of a session that has not begun
            return []
        releases, context = self._releases, eager_context()
        tell, before = self.counters.stats_function, self.counters.earlier_peak
        return [
            Pool(
                self.name,
                one.name,
                uuid,
                figures["current"],
                max(figures["peak"], before((), context, one.name)),
                figures["peak"],
                limit=None if releases else one.limit or None,  # CUDA's own pool keeps to none
                releases=releases,
            )
            for uuid, logical in there.items()
            for one in logical
            for figures in [tell(context, one.name)]
        ]

    def with_settings(self, pool: Pool) -> Pool:
        """Return a pool with what the settings say of it, and with what CUDA's own pool has taken."""
        settings = devices.current_settings()
        return pool._replace(
            capped=bool(settings.limits.get(pool.gpu)),
            grows=settings.grows or pool.releases,
            taken=cuda.pool_sizes().get(pool.gpu) if pool.releases else None,
        )

    @property
    def gives_back(self) -> bool:  # type: ignore[override]  # the variable may be set at any time
        """Whether its memory comes from CUDA's own pools: under `growth --release`, or by the user's own variable."""
        return os.environ.get(ALLOCATOR) == ASYNC

    def give_back(self) -> dict[str, int]:
        """Free what CUDA's pools keep and no tensor uses; return the bytes by the UUID of each GPU."""
        return cuda.give_back()

    def reset_peaks(self) -> None:
        """Reset the counters of its logical GPUs."""
        for logical in devices.logical().values():
            for one in logical:
                self.counters.reset(eager_context(), one.name)

    def configure(self, part: FrameworkPlan) -> None:
        """Set by `tf.config`, if TensorFlow is imported, what variables cannot set."""
        devices.configure(part)

    def arrays(self, objects: Sequence[object]) -> Iterable[Array]:
        """Return its tensors and variables on GPUs."""
        return arrays.arrays(objects)


FRAMEWORK = TensorFlow()


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def _device(text: str) -> str:
    found = _DEVICE.search(text)
    return found[1] if found else ""
