"""What isolated calls of the tests do on the simulated machine."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import until
from tfgpu_magic.simgpu import Machine


@dataclass(frozen=True)
class Seen:
    """What a call saw by the driver's account, bytes GPU by GPU.

    Attributes:
        pid: its process.
        mine: what that held.
        all: what all processes held then.
        began: when it took its memory, in seconds.
        ended: when it returned.
    """

    pid: int
    mine: list[int]
    all: list[int]
    began: float
    ended: float

    @property
    def gpus(self) -> list[int]:
        """The GPUs that it held memory of."""
        return [index for index, held in enumerate(self.mine) if held]


def hold(folder: str = "", others: int = 1, seconds: float = 0.0) -> Seen:
    """Have TensorFlow take every GPU that it sees, wait until so many calls have, and look then."""
    import tensorflow as tf

    began = time.monotonic()
    for gpu in tf.config.list_logical_devices("GPU"):
        with tf.device(gpu.name):
            tf.zeros(1000)
    if folder:
        meet(folder, "hold", others)
    machine = Machine.current()
    assert machine is not None
    indexes = [gpu.index for gpu in machine.gpus()]
    mine = [machine.held(pid=os.getpid(), gpu=index) for index in indexes]
    everybody = [machine.held(gpu=index) for index in indexes]
    time.sleep(seconds)
    if folder:
        meet(folder, "looked", others)
    return Seen(os.getpid(), mine, everybody, began, time.monotonic())


def meet(folder: str, what: str, others: int, *, come: bool = True) -> None:
    """Wait in `folder` until so many processes have come as far as `what`; without `come` it only looks."""
    if come:
        Path(folder, f"{what}-{os.getpid()}").touch()
    until(lambda: list(Path(folder).glob(f"{what}-*")), lambda found: len(found) >= others, seconds=60, every=0.01)


def sees() -> tuple[int, str | None]:
    """Return how many GPUs TensorFlow sees, and CUDA_VISIBLE_DEVICES."""
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU")), os.environ.get("CUDA_VISIBLE_DEVICES")
