"""JAX as one of the frameworks of this process: its stage, its figures, and what it takes of each GPU.

Its backend takes three quarters of every GPU when it starts, unless variables say otherwise, which are read then.
Source: JAX's "GPU memory allocation", and `jaxlib.xla_client.generate_pjrt_gpu_plugin_options`.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from tfgpu_magic.config import cuda
from tfgpu_magic.config.framework_plan import FrameworkPlan, FrameworkState, Wanted, phrase
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.frameworks.versions import installed
from tfgpu_magic.monitor.report import Figure

PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
FRACTION, OLD_FRACTION = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""The part of every GPU that it may take. To set both is an error at its start, after which it uses the CPU."""

KNOWS_FRACTION = (0, 4, 32)
"""The first release of jaxlib that knows `FRACTION`."""


class Jax:
    """JAX as a `Framework`."""

    name = "JAX"
    module = "jax"
    out_of_memory = re.compile(r"RESOURCE_EXHAUSTED: (Out of memory|Failed to allocate)", re.IGNORECASE)
    runtime = None
    fixed_once_used = True

    def __init__(self) -> None:
        self.since: str | None = None

    def stage(self) -> Stage:
        """Return its stage; a backend on the CPU alone is none that uses a GPU."""
        if not hasattr(sys.modules.get("jax"), "__version__"):
            return Stage.ABSENT
        if _gpus():
            return Stage.READY
        # With its plug-ins it reads the variables. A backend without a GPU is all that it will have.
        return Stage.LISTED if getattr(_bridge(), "_plugins_registered", False) and not _backends() else Stage.IMPORTED

    def figures(self) -> dict[str, tuple[Figure, ...]]:
        """Return its figures by the UUID of each GPU that it has a pool on."""
        uuids = cuda.shown()
        found: dict[str, tuple[Figure, ...]] = {}
        for device in _gpus():
            stats = device.memory_stats() or {}
            number = getattr(device, "local_hardware_id", None)
            if number is not None and number < len(uuids) and "bytes_in_use" in stats:
                found[uuids[number]] = (
                    Figure(framework=self.name, what="in use", size=stats["bytes_in_use"], used=True, taken=True),
                    Figure(framework=self.name, what="peak", size=stats.get("peak_bytes_in_use", 0), peak=True),
                )
        return found

    def version(self) -> tuple[int, ...]:
        """Return the version that is installed; empty where none is."""
        return installed("jaxlib")

    def held(self) -> dict[str, int]:
        """Return nothing: once it holds memory, nothing can be changed."""
        return {}

    def plan(self, wanted: Wanted, state: FrameworkState) -> FrameworkPlan:
        """Decide what is done about it. Pure."""
        if wanted.grows is None:
            return FrameworkPlan(framework=self.name)
        fraction, notes = wanted.common_fraction(self.name)
        name, other = (FRACTION, OLD_FRACTION) if state.version >= KNOWS_FRACTION else (OLD_FRACTION, FRACTION)
        environment: dict[str, str | None] = {PREALLOCATE: "false" if wanted.grows else "true"}
        if fraction is not None:
            environment |= {name: str(fraction)} | ({other: None} if other in state.environment else {})
        return FrameworkPlan(
            framework=self.name,
            environment=environment,
            limits=wanted.limits,
            fractions=wanted.fractions,
            takes=phrase(wanted, grows=wanted.grows),
            notes=notes,
        )

    def configure(self, plan: FrameworkPlan) -> None:
        """Do nothing: the variables are read when the backend starts."""


def _gpus() -> list[Any]:
    """Return its GPUs, if its backend has started; it is not started for that."""
    return [device for name, one in _backends() if name in ("cuda", "gpu") for device in one.local_devices()]


def _backends() -> list[tuple[str, Any]]:
    return list((getattr(_bridge(), "_backends", None) or {}).items())


def _bridge() -> Any:
    return sys.modules.get("jax._src.xla_bridge")
