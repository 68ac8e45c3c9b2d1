"""TensorFlow as one of the frameworks of this process; what only it has is in `config.runtime`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfgpu_magic.config import import_hook
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.runtime import RUNTIME, counters, current_stage, devices
from tfgpu_magic.frameworks.peaks import Counter
from tfgpu_magic.monitor.report import TENSORFLOW, Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfgpu_magic.config.runtime.devices import Pool


class TensorFlow:
    """TensorFlow as a `Framework`."""

    name = TENSORFLOW
    # "CUDA_ERROR_OUT_OF_MEMORY", "Status: out of memory", "OOM when allocating tensor with shape[...]".
    out_of_memory = re.compile(r"out.of.memory|\bOOM\b", re.IGNORECASE)
    runtime = RUNTIME
    resets = True

    def __init__(self) -> None:
        self._between: Callable[[Callable[[], None]], None] = lambda reset: reset()

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

    def counters(self) -> tuple[Counter, ...]:
        """Return the counters of its logical GPUs; some 10 µs each."""
        return tuple(
            Counter(name=one.name, gpu=uuid, in_use=in_use, peak=peak, limit=one.limit)
            for uuid, logical in devices.logical().items()
            for one in logical
            for in_use, peak in [counters.read(one.name)]
        )

    def reset_peaks(self) -> None:
        """Reset the counters of its logical GPUs."""
        for logical in devices.logical().values():
            for one in logical:
                counters.reset(one.name)

    def share_peaks(self, between: Callable[[Callable[[], None]], None]) -> None:
        """Have the resets of others done by a function, from TensorFlow's import on."""
        self._between = between
        import_hook.call_at_import(self._share)

    def _share(self) -> None:
        counters.share(self._between)

    def _figures(self, pools: Sequence[Pool]) -> tuple[Figure, ...]:
        in_use, peaks = sum(pool.in_use for pool in pools), [pool.peak for pool in pools if pool.peak]
        # Pools have peaks of their own: their sum is not the peak of the sum.
        peak = "peaks" if len(peaks) > 1 else "peak"
        return (
            Figure(framework=self.name, what="in use", size=in_use, used=True, taken=True),
            Figure(framework=self.name, what=peak, size=sum(peaks), peak=True),
        )
