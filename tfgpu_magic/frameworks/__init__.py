"""The frameworks that may take GPU memory in this process: a module each, and an entry in `FRAMEWORKS`.

They are queried only where the user's own code has imported and started them: nothing here imports or starts one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.frameworks.jax import Jax
from tfgpu_magic.frameworks.tensorflow import TensorFlow
from tfgpu_magic.frameworks.torch import Torch

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from tfgpu_magic.config.runtime import Runtime
    from tfgpu_magic.monitor.report import Figure


class Framework(Protocol):
    """What the package needs of a framework."""

    @property
    def name(self) -> str:
        """Its name for people, which its figures carry."""

    @property
    def out_of_memory(self) -> re.Pattern[str]:
        """A pattern that its errors match when a GPU has no memory left."""

    @property
    def runtime(self) -> Runtime | None:
        """What enforces a policy on it and records which cell started it; None where it takes no policy yet."""

    def stage(self) -> Stage:
        """Return its stage in this process, without changing it."""

    def figures(self) -> Mapping[str, tuple[Figure, ...]]:
        """Return its allocator's figures by the UUID of each GPU; called only while its stage is `Stage.READY`."""


FRAMEWORKS: tuple[Framework, ...] = (TensorFlow(), Torch(), Jax())
"""The frameworks, in the order in which views show their figures."""


def figures() -> dict[str, tuple[Figure, ...]]:
    """Return the figures of all frameworks that are ready, by the UUID of the GPU; some 10 µs a GPU and framework."""
    found: dict[str, tuple[Figure, ...]] = {}
    for framework in FRAMEWORKS:
        # Their errors have no common root. A framework that fails has no figures, and the others keep theirs.
        with contextlib.suppress(Exception):
            if framework.stage() is Stage.READY:
                for uuid, figures_there in framework.figures().items():
                    found[uuid] = (*found.get(uuid, ()), *figures_there)
    return found


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error is any framework's report that a GPU has no memory left.

    Only its text is matched: an error of another process has no type or traceback that would show its framework.
    """
    return any(framework.out_of_memory.search(str(error)) for framework in FRAMEWORKS)
