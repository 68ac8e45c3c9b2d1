"""TensorFlow as one of the frameworks of this process; what only it has is in `config.runtime`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfgpu_magic.config import cuda, import_hook, runtime
from tfgpu_magic.config.process_state import ALLOCATOR, ASYNC, Stage
from tfgpu_magic.config.runtime import RUNTIME, counters, current_stage, devices, environment
from tfgpu_magic.config.runtime.stage import eager_context
from tfgpu_magic.frameworks import tensorflow_arrays, tensorflow_errors
from tfgpu_magic.frameworks.peaks import Counter
from tfgpu_magic.frameworks.shortage import PoolState
from tfgpu_magic.monitor.report import TENSORFLOW, Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tfgpu_magic.config.runtime.devices import Pool
    from tfgpu_magic.frameworks.array import Array
    from tfgpu_magic.frameworks.objects import Objects
    from tfgpu_magic.frameworks.shortage import Shortage


class TensorFlow:
    """TensorFlow as a `Framework`."""

    name = TENSORFLOW
    # "CUDA_ERROR_OUT_OF_MEMORY", "Status: out of memory", "OOM when allocating tensor with shape[...]", "failed to
    # allocate memory [Op:AddV2]", "Dst tensor is not initialized."
    out_of_memory = re.compile(
        r"out.of.memory|\bOOM\b|failed to allocate memory\b.*\[(Op:|\[)|Dst tensor is not initialized",
        re.IGNORECASE | re.DOTALL,
    )
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

    def shortage(self, text: str) -> Shortage | None:
        """Return what an error's text says of memory that was missing."""
        return tensorflow_errors.shortage(text)

    def pools(self) -> list[PoolState]:
        """Return the pool of each logical GPU; it rarely tells what it has taken, and never the largest piece."""
        limits, grows = runtime.limits_now(), runtime.growth_in_force(RUNTIME.observe((), timeout=0.0))
        figures, releases = devices.pools(), self.gives_back
        taken = cuda.pools() if releases else {}
        return [
            PoolState(
                framework=self.name,
                name=one.name,
                gpu=uuid,
                in_use=pool.in_use,
                peak=pool.peak,
                limit=None if releases else pool.limit or None,  # CUDA's own pool keeps to none
                capped=bool(limits.get(uuid)),
                grows=grows,
                releases=releases,
                taken=taken.get(uuid),
            )
            for uuid, logical in devices.logical().items()
            for one, pool in zip(logical, figures[uuid], strict=True)
        ]

    @property
    def gives_back(self) -> bool:
        """Whether its memory comes from CUDA's own pools: under `growth --release`, or by the user's own variable."""
        return environment().get(ALLOCATOR) == ASYNC

    def give_back(self) -> dict[str, int]:
        """Have CUDA's pools give back what none of its tensors uses; return the bytes by the UUID of each GPU."""
        return cuda.give_back()

    def finish(self) -> None:
        """Wait for its executors, of which a program may have asynchronous ones."""
        context = eager_context()
        if context is not None:
            context.sync_executors()

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
