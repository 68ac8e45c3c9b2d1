"""TensorFlow as one of the frameworks of this process; what only it has is in `config.runtime`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfgpu_magic.config import cuda
from tfgpu_magic.config.process_state import ALLOCATOR, ASYNC
from tfgpu_magic.config.runtime import RUNTIME, current_stage, devices, environment
from tfgpu_magic.monitor.report import TENSORFLOW, Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgpu_magic.config.process_state import Stage
    from tfgpu_magic.config.runtime.devices import Pool


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

    @property
    def gives_back(self) -> bool:
        """Whether its memory comes from CUDA's own pools: under `growth --release`, or by the user's own variable."""
        return environment().get(ALLOCATOR) == ASYNC

    def give_back(self) -> dict[str, int]:
        """Have CUDA's pools give back what none of its tensors uses; return the bytes by the UUID of each GPU."""
        return cuda.give_back()

    def _figures(self, pools: Sequence[Pool]) -> tuple[Figure, ...]:
        in_use, peaks = sum(pool.in_use for pool in pools), [pool.peak for pool in pools if pool.peak]
        # Pools have peaks of their own: their sum is not the peak of the sum.
        peak = "peaks" if len(peaks) > 1 else "peak"
        return (
            Figure(framework=self.name, what="in use", size=in_use, used=True, taken=True),
            Figure(framework=self.name, what=peak, size=sum(peaks), peak=True),
        )
