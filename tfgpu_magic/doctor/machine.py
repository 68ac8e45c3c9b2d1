"""What several checks read of this machine: the driver and CUDA, each once and when it is first wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tfgpu_magic.doctor.child import Reply, ask
from tfgpu_magic.ground import child_process
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.machine.see import look


@dataclass
class ThisMachine:
    """This machine, as checks read it.

    Attributes:
        root: where its file system begins.
        environ: the environment variables.
        quick: whether neither CUDA nor TensorFlow is started.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    quick: bool = False

    @cached_property
    def snapshot(self) -> Snapshot:
        """What the driver answers; its `error` says why it does not."""
        return look(child_process.PATIENCE)

    @property
    def has_gpus(self) -> bool:
        """Whether the driver has listed its GPUs."""
        return self.snapshot.error is None

    @cached_property
    def cuda(self) -> Reply:
        """What came of starting CUDA; empty where it was not: in a hurry, or because it would hang with the driver."""
        code = "from tfgpu_magic.doctor.cuda_child import main; main()"
        return ask(code) if self.has_gpus and not self.quick else Reply()

    def label(self, uuid: str) -> str:
        """Return the number of a GPU, as `Gpu.label`; its UUID where the driver has none of it."""
        return next((gpu.label for gpu in self.snapshot.gpus if gpu.uuid == uuid), uuid)

    def text(self, path: str) -> str | None:
        """Return what a file has, such as ``/proc/version``; None where it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace")
        except OSError:
            return None
