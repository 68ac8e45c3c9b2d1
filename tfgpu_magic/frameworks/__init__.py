"""The frameworks that may take GPU memory in this process: a file each, and a line in `FRAMEWORKS`.

They are asked only where the user's own code has imported and woken them: nothing here imports or wakes one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.frameworks.tensorflow import TensorFlow
from tfgpu_magic.frameworks.torch import Torch

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from tfgpu_magic.config.runtime import Runtime
    from tfgpu_magic.monitor.report import Figure


class Framework(Protocol):
    """What is to be known of a framework."""

    @property
    def name(self) -> str:
        """What people call it; its figures carry it."""

    @property
    def out_of_memory(self) -> re.Pattern[str]:
        """What its errors say when a GPU has no memory left."""

    @property
    def runtime(self) -> Runtime | None:
        """What puts a policy in force on it, and knows who woke it; None where nothing can be asked of it yet."""

    def stage(self) -> Stage:
        """Tell how far it has come in this process, without moving it."""

    def figures(self) -> Mapping[str, tuple[Figure, ...]]:
        """Return its allocator's figures by the UUID of each GPU; asked only while its stage is `Stage.READY`."""


FRAMEWORKS: tuple[Framework, ...] = (TensorFlow(), Torch())
"""In the order in which views show their figures."""


def figures() -> dict[str, tuple[Figure, ...]]:
    """Return the figures of all frameworks that are awake, by the UUID of the GPU; some 10 µs a GPU and framework."""
    found: dict[str, tuple[Figure, ...]] = {}
    for framework in FRAMEWORKS:
        # Their errors have no common root. One that cannot tell has no figures, and costs the others none.
        with contextlib.suppress(Exception):
            if framework.stage() is Stage.READY:
                for uuid, its in framework.figures().items():
                    found[uuid] = (*found.get(uuid, ()), *its)
    return found


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that a GPU has no memory left, as any framework says it.

    Its text alone tells: an error of another process has no type or traceback that would say whose it is.
    """
    return any(framework.out_of_memory.search(str(error)) for framework in FRAMEWORKS)
