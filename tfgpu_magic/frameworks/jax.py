"""JAX as one of the frameworks of this process: its stage and its figures; `jax_settings` has the variables it reads.

Sources: jax and jaxlib 0.10.2, `jax/_src/xla_bridge.py` (`backends`, `_backends`, `_plugins_registered`), and what its
CUDA backend does on a simulated machine (`tests/frameworks/test_jax.py`). JAX's first array or operation starts the
backends of all platforms, for good; `import jax` starts none. With `JAX_PLATFORMS=cpu` no CUDA backend is started.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from tfgpu_magic.config import cuda
from tfgpu_magic.config.framework_plan import FrameworkPlan, FrameworkState, Wanted, phrase
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import jax_arrays, jax_errors, jax_settings
from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.frameworks.objects import Objects
from tfgpu_magic.frameworks.peaks import Counter
from tfgpu_magic.frameworks.shortage import PoolState, Shortage
from tfgpu_magic.frameworks.versions import installed
from tfgpu_magic.monitor.report import Figure


class Jax:
    """JAX as a `Framework`."""

    name = "JAX"
    # "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.00GiB."; before 0.5 "... Out of memory allocating
    # 2147483648 bytes." and "... Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0".
    out_of_memory = re.compile(r"RESOURCE_EXHAUSTED: (Out of memory|Failed to allocate)")
    runtime = None
    resets = False  # nothing resets its peaks
    comes_with_tensorflow = True
    fixed_once_used = True

    def __init__(self) -> None:
        self.since: str | None = None

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

    def figures(self) -> dict[str, tuple[Figure, ...]]:
        """Return its figures by the UUID of each GPU that it has taken memory of; microseconds a GPU."""
        shown = cuda.shown()  # JAX's local hardware ids are CUDA's numbers
        found: dict[str, tuple[Figure, ...]] = {}
        for device in _bridge()._backends["cuda"].local_devices():
            told = device.memory_stats() or {}
            if told.get("peak_bytes_in_use") or told.get("pool_bytes"):
                found[shown[device.local_hardware_id]] = tuple(self._figures(told))
        return found

    def shortage(self, text: str) -> Shortage | None:
        """Return what an error's text says of memory that was missing."""
        return jax_errors.shortage(text)

    def pools(self) -> list[PoolState]:
        """Return its pool on each GPU; not every allocator has a limit, or tells its largest free block."""
        shown, grows = cuda.shown(), jax_settings.grows(os.environ)
        found = []
        for device in _bridge()._backends["cuda"].local_devices():
            told, number = device.memory_stats() or {}, device.local_hardware_id
            found.append(
                PoolState(
                    framework=self.name,
                    name=f"cuda:{number}",
                    gpu=shown[number],
                    in_use=told.get("bytes_in_use", 0),
                    peak=told.get("peak_bytes_in_use", 0),
                    limit=told.get("bytes_limit") or None,
                    capped=bool(told.get("bytes_limit")),
                    grows=grows,
                    taken=told.get("pool_bytes"),
                    largest=told.get("largest_free_block_bytes") or None,
                )
            )
        return found

    def finish(self) -> None:
        """Wait for every array: JAX returns one before it is computed."""
        jax = sys.modules["jax"]
        jax.block_until_ready(jax.live_arrays())

    def counters(self) -> tuple[Counter, ...]:
        """Return the counters of each GPU that it has taken memory of."""
        if self.stage() is not Stage.READY:
            return ()
        shown, found = cuda.shown(), []
        for device in _bridge()._backends["cuda"].local_devices():
            told, number = device.memory_stats() or {}, device.local_hardware_id
            if told.get("peak_bytes_in_use") or told.get("pool_bytes"):
                found.append(
                    Counter(
                        name=f"cuda:{number}",
                        gpu=shown[number],
                        in_use=told.get("bytes_in_use", 0),
                        peak=told.get("peak_bytes_in_use", 0),
                        limit=told.get("bytes_limit") or None,
                    )
                )
        return tuple(found)

    def reset_peaks(self) -> None:
        """Do nothing: its peaks are those since it started."""

    def share_peaks(self, between: Callable[[Callable[[], None]], None]) -> None:
        """Do nothing: nobody resets them."""

    def arrays(self, objects: Objects) -> Iterable[Array]:  # noqa: ARG002  # it has a list of its own
        """Return its arrays on GPUs."""
        return jax_arrays.arrays()

    def in_use(self) -> dict[str, int]:
        """Return the bytes in use on each GPU."""
        return {
            f"cuda:{device.id}": (device.memory_stats() or {}).get("bytes_in_use", 0)
            for device in _bridge()._backends["cuda"].local_devices()
        }

    def version(self) -> tuple[int, ...]:
        """Return the version of jaxlib that is installed, which reads the variables; empty where none is."""
        return installed("jaxlib")

    def held(self) -> dict[str, int]:
        """Return nothing: once it holds memory, nothing can be changed."""
        return {}

    def plan(self, wanted: Wanted, state: FrameworkState) -> FrameworkPlan:
        """Decide what is done about it. Pure.

        Raises:
            Refused: it is asked for a limit, and uses an allocator that heeds none.
        """
        if wanted.grows is None:
            return FrameworkPlan(framework=self.name)
        held = wanted.within(jax_settings.own_fraction(state.environment))
        fractions = held.fractions
        variables = jax_settings.variables(fractions, wanted.grows, state.environment, state.version)
        notes = [*held.lowered(self.name), *jax_settings.remarks(fractions, wanted.grows, state.environment)]
        allocator = jax_settings.uncapped(state.environment)
        if fractions and allocator is not None:
            heedless = f"{jax_settings.ALLOCATOR}={allocator} is set, with which JAX heeds no limit."
            if wanted.asked:
                raise Refused(heedless)
            variables[jax_settings.ALLOCATOR] = None
            notes.append(f"{heedless} In this process it is unset now.")
        return FrameworkPlan(
            framework=self.name,
            environment=variables,
            limits=held.limits,
            fractions=wanted.fractions,
            ceilings=wanted.ceilings,
            takes=phrase(held, grows=wanted.grows),
            notes=notes,
        )

    def configure(self, plan: FrameworkPlan) -> None:
        """Do nothing: it reads the variables when its backends start."""

    def _figures(self, told: dict[str, int]) -> list[Figure]:
        """Return what its allocator tells: not every allocator has a pool or a limit, and no limit is 0."""
        pool, limit = told.get("pool_bytes"), told.get("bytes_limit")
        figures = [
            Figure(framework=self.name, what="in use", size=told.get("bytes_in_use", 0), used=True, taken=pool is None),
            Figure(framework=self.name, what="peak", size=told.get("peak_bytes_in_use", 0), peak=True),
        ]
        if pool is not None:
            figures.append(Figure(framework=self.name, what="pool", size=pool, taken=True))
        if limit:
            figures.append(Figure(framework=self.name, what="limit", size=limit))
        return figures


def _bridge() -> Any:
    return sys.modules.get("jax._src.xla_bridge")
