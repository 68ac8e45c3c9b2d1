"""JAX as one of the frameworks of this process: its stage and its figures; `settings` has the variables it reads.

Sources: jax and jaxlib 0.10.2, `jax/_src/xla_bridge.py` (`backends`, `_backends`, `_plugins_registered`), and what its
CUDA backend does on a simulated machine (`tests/frameworks/test_jax.py`). JAX's first array or operation starts the
backends of all platforms, for good; `import jax` starts none. With `JAX_PLATFORMS=cpu` no CUDA backend is started.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.frameworks.array import Array, round_up
from tfgpu_magic.frameworks.base import Framework
from tfgpu_magic.frameworks.jax import settings
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.frameworks.shortage import Shortage, parse_library_error, parse_size
from tfgpu_magic.ground.message import msg, paragraph
from tfgpu_magic.policy.plan import FrameworkPlan, FrameworkState
from tfgpu_magic.policy.process_state import Stage

# Errors: what jaxlib 0.10.2 raises on a simulated machine, and texts of its sources: `bfc_allocator.cc`,
# `pjrt_client.cc`, `se_gpu_pjrt_client.cc`, `cuda_dnn.cc`, `solver_handle_pool.cc`.
# "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.00GiB."; "... Out of memory allocating 2147483648
# bytes."; "... Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0".
_ARRAY = re.compile(
    r"RESOURCE_EXHAUSTED: (?:Out of memory (?:while trying to allocate|allocating)|Failed to allocate request for) "
    r"(?P<size>[\d.]+ ?[A-Za-z]+)(?: \((?P<exact>\d+)B\))?(?:.*?device ordinal (?P<gpu>\d+))?",
    re.DOTALL,
)
_DRIVER = re.compile(r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|operation gpu\w+\(.*failed: out of memory")
_STATUS = re.compile(r"\b(?:INTERNAL|FAILED_PRECONDITION|UNKNOWN|NOT_FOUND|RESOURCE_EXHAUSTED): ")


class Jax(Framework):
    """JAX as a `Framework`."""

    name = "JAX"
    out_of_memory = re.compile(r"RESOURCE_EXHAUSTED: (Out of memory|Failed to allocate)")
    comes_with_tensorflow = True
    fixed_once_used = True
    package = "jaxlib"  # which reads the variables
    grows_by: ClassVar = {settings.PREALLOCATE: "false"}

    def stage(self) -> Stage:
        """Return its stage; a backend for the CPU alone uses no GPU, and never will."""
        backends = getattr(_bridge(), "_backends", None)
        if backends is None:
            return Stage.ABSENT
        if "cuda" in backends:
            return Stage.READY
        # It has read its variables, and still may start.
        read = getattr(_bridge(), "_plugins_registered", False) and not backends
        return Stage.LISTED if read else Stage.IMPORTED

    def is_cpu_only(self) -> bool:
        """Return whether its backends have started, and are the CPU's alone."""
        backends = {*(getattr(_bridge(), "_backends", None) or ())}
        return bool(backends) and backends <= {"cpu", "interpreter"}

    def shortage(self, text: str) -> Shortage | None:
        """Return what an error's text says, in JAX's words, of memory that was missing; None where nothing."""
        if found := _ARRAY.search(text):
            size = int(found["exact"]) if found["exact"] else parse_size(found["size"].rstrip("."))
            device = "" if found["gpu"] is None else f"cuda:{found['gpu']}"
            return Shortage(framework=self.name, size=size, device=device)
        if self.out_of_memory.search(text):
            return Shortage(framework=self.name)
        if _DRIVER.search(text) and "Bad StatusOr access" not in text:  # which is TensorFlow's
            return Shortage(framework=self.name, kind="driver")
        return parse_library_error(self.name, text) if _STATUS.search(text) else None

    def pools(self) -> list[Pool]:
        """Return its pool on each GPU; not every allocator has a limit or a pool, or tells its largest free block."""
        found: list[Pool] = []
        if self.stage() is not Stage.READY:
            return found
        shown, grows = cuda.visible_gpus(), settings.has_growth(os.environ)  # JAX's local ids are CUDA's numbers
        for device in _bridge()._backends["cuda"].local_devices():
            told, number = device.memory_stats() or {}, device.local_hardware_id
            peak, pool = told.get("peak_bytes_in_use", 0), told.get("pool_bytes")
            found.append(
                Pool(
                    framework=self.name,
                    name=f"cuda:{number}",
                    gpu=shown[number],
                    in_use=told.get("bytes_in_use", 0),
                    peak=peak,
                    counted=peak,
                    touched=bool(peak or pool),
                    limit=told.get("bytes_limit") or None,
                    capped=bool(told.get("bytes_limit")),
                    grows=grows,
                    taken=pool,
                    largest=told.get("largest_free_block_bytes") or None,
                )
            )
        return found

    def arrays(self, objects: Sequence[object]) -> Iterable[Array]:  # noqa: ARG002  # it has a list of its own
        """Return its arrays on GPUs, one for each part of an array that is spread over several."""
        for array in sys.modules["jax"].live_arrays():
            # Its errors have no common root; one array that is deleted meanwhile hides no other.
            with contextlib.suppress(Exception):
                if not array.is_deleted():
                    yield from _shards(array)

    def plan(self, wanted: FrameworkPlan, state: FrameworkState) -> FrameworkPlan:
        """Decide what is done about it. Pure.

        Raises:
            Refused: it is asked for a limit, and uses an allocator that heeds none.
        """
        grows = wanted.growth
        if grows is None:
            return FrameworkPlan(framework=self.name)
        wanted = replace(wanted, own=settings.own_fraction(state.environment))
        held = wanted.beside_own()
        fractions = held.fractions
        variables = settings.variables(fractions, grows, state.environment)
        notes = [*held.lowered(), *settings.remarks(fractions, grows, state.environment)]
        allocator = settings.uncapped_allocator(state.environment)
        if fractions and allocator is not None:
            heedless = msg("{set} is set, with which JAX heeds no limit.", set=f"{settings.ALLOCATOR}={allocator}")
            if state.strict:
                raise Refused(heedless)
            variables[settings.ALLOCATOR] = None
            notes.append(paragraph((heedless, "In this process it is unset now.")))
        return replace(
            wanted,
            devices=tuple(device for device in wanted.devices if device.limits),
            environment=variables,
            takes=held.phrase(grows=grows),
            notes=notes,
        )


FRAMEWORK = Jax()


def _bridge() -> Any:
    return sys.modules.get("jax._src.xla_bridge")


def _shards(array: Any) -> Iterator[Array]:
    for shard in array.addressable_shards:
        if shard.device.platform == "gpu" and shard.data.nbytes:
            yield Array(
                thing=array,
                what="array",
                dtype=str(array.dtype),
                shape=tuple(shard.data.shape),
                size=round_up(shard.data.nbytes, 256),  # its allocator is XLA's, as TensorFlow's is
                device=f"cuda:{shard.device.local_hardware_id}",
                address=shard.data.unsafe_buffer_pointer(),
            )
