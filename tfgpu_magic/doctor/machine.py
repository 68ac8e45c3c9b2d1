"""What several checks read of this machine: the driver and CUDA, each once and when it is first wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tfgpu_magic.doctor.child import Reply, ask
from tfgpu_magic.model.snapshot import Gpu, Snapshot
from tfgpu_magic.policy.process_state import DEVICES

_READER = "from tfgpu_magic.monitor.driver.nvml import NvmlReader; "
_DRIVER = f"{_READER}from tfgpu_magic.doctor.children.driver import read; read(NvmlReader())"
_CUDA = f"{_READER}from tfgpu_magic.doctor.children.driver import start; start(NvmlReader())"


@dataclass(frozen=True, slots=True)
class DriverReply:
    """What the driver has answered.

    Attributes:
        answer: what came of asking it.
        snapshot: its GPUs; None where it did not answer, or the process that asked it ended.
    """

    answer: Reply
    snapshot: Snapshot | None = None

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs and MIG instances; none where there is no driver."""
        return () if self.snapshot is None else self.snapshot.gpus

    @property
    def works(self) -> bool:
        """Whether it has listed its GPUs."""
        return self.snapshot is not None and self.snapshot.error is None


class ThisMachine:
    """This machine, as checks read it.

    Args:
        root: where its file system begins.
        environ: the environment variables.
        quick: whether neither CUDA nor TensorFlow is started.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        environ: Mapping[str, str] = os.environ,
        *,
        quick: bool = False,
    ) -> None:
        self.root, self.environ, self.quick = root, environ, quick

    @cached_property
    def driver(self) -> DriverReply:
        """What the driver answers."""
        answer = ask(_DRIVER)
        return DriverReply(answer, Snapshot.from_json(answer.facts["snapshot"]) if answer.facts else None)

    @cached_property
    def cuda(self) -> Reply:
        """What came of starting CUDA; empty where it was not: in a hurry, or because it would hang with the driver."""
        return ask(_CUDA) if self.driver.works and not self.quick else Reply()

    @property
    def simulated(self) -> bool:
        """Whether its GPUs are simulated."""
        return self.driver.snapshot is not None and self.driver.snapshot.simulated

    @property
    def visible(self) -> str | None:
        """The GPUs that the user has made visible to CUDA; None where all are."""
        return self.environ.get(DEVICES)

    def label(self, uuid: str) -> str:
        """Return the number of a GPU, as `Gpu.label`; its UUID where the driver has none of it."""
        return next((gpu.label for gpu in self.driver.gpus if gpu.uuid == uuid), uuid)

    def text(self, path: str) -> str | None:
        """Return what a file has, such as ``/proc/version``; None where it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace")
        except OSError:
            return None
