"""TensorFlow as one of the frameworks of this process; what only it has is in `config.runtime`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfgpu_magic.config.runtime import RUNTIME, current_stage, devices
from tfgpu_magic.frameworks import tensorflow_arrays
from tfgpu_magic.monitor.report import TENSORFLOW, Figure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfgpu_magic.config.process_state import Stage
    from tfgpu_magic.config.runtime.devices import Pool
    from tfgpu_magic.frameworks.array import Array
    from tfgpu_magic.frameworks.objects import Objects


class TensorFlow:
    """TensorFlow as a `Framework`."""

    name = TENSORFLOW
    # "CUDA_ERROR_OUT_OF_MEMORY", "Status: out of memory", "OOM when allocating tensor with shape[...]".
    out_of_memory = re.compile(r"out.of.memory|\bOOM\b", re.IGNORECASE)
    runtime = RUNTIME

    @property
    def since(self) -> str | None:
        """The cell that made it use a GPU, as a phrase, if the cells are watched."""
        return RUNTIME.since

    @since.setter
    def since(self, phrase: str | None) -> None:
        RUNTIME.since = phrase

    def stage(self) -> Stage:
        """Return its stage."""
        return current_stage()

    def figures(self) -> dict[str, tuple[Figure, ...]]:
        """Return its figures by the UUID of each GPU: those of all logical GPUs on it together."""
        return {uuid: self._figures(pools) for uuid, pools in devices.pools().items()}

    def arrays(self, objects: Objects) -> Iterable[Array]:
        """Return its tensors and variables on GPUs."""
        return tensorflow_arrays.arrays(objects)

    def in_use(self) -> dict[str, int]:
        """Return the bytes in use by logical GPU."""
        pools = devices.pools()
        return {
            gpu.name: pool.in_use
            for uuid, gpus in devices.logical().items()
            for gpu, pool in zip(gpus, pools[uuid], strict=True)
        }

    def _figures(self, pools: Sequence[Pool]) -> tuple[Figure, ...]:
        in_use, peaks = sum(pool.in_use for pool in pools), [pool.peak for pool in pools if pool.peak]
        # Pools have peaks of their own: their sum is not the peak of the sum.
        peak = "peaks" if len(peaks) > 1 else "peak"
        return (
            Figure(framework=self.name, what="in use", size=in_use, used=True, taken=True),
            Figure(framework=self.name, what=peak, size=sum(peaks), peak=True),
        )
