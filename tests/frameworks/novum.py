"""A framework of the tests, as one is added: this file in a folder of its own, and a line in `frameworks.NAMES`."""

from __future__ import annotations

import re

from tests.sizes import MIB
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.frameworks.base import Framework
from tfgpu_magic.ground.report import Figure
from tfgpu_magic.policy.process_state import Stage


class Novum(Framework):
    """Novum, as `Framework` asks it."""

    name = "Novum"
    out_of_memory = re.compile("Novum is full")

    def __init__(self, stage: Stage = Stage.READY) -> None:
        self._stage = stage

    def stage(self) -> Stage:
        """Tell how far it has come."""
        return self._stage

    def figures(self) -> dict[str, tuple[Figure, ...]]:
        """Return its figures by the UUID of each GPU."""
        pooled = Figure(framework=self.name, what="pooled", size=768 * MIB, taken=True)
        return {
            uuid: (pooled, Figure(framework=self.name, what="live", size=0, used=True)) for uuid in cuda.visible_gpus()
        }
