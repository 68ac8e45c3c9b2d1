"""What the tests of Dask's clusters call in processes on their workers."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tfgpu_magic.isolate import dask
from tfgpu_magic.simgpu import Machine


def grow() -> tuple[str, int]:
    """Take a GPU with TensorFlow; where that was, and what the driver says that this process holds."""
    import tensorflow as tf

    with tf.device("GPU:0"):
        tf.zeros(2**20) + 1
    machine = Machine.current()
    assert machine is not None
    time.sleep(0.3)  # it is a call that takes time, so that others go to the other machine
    return str(machine.path), machine.held(pid=os.getpid())


def wait_for(file: Path, begun: Path) -> str:
    """Say in one file that it has begun, and wait for the other."""
    with begun.open("a") as lines:
        lines.write(f"{os.getpid()}\n")
    print("it has begun")
    print("and so it says", file=sys.stderr)
    while not file.exists():
        time.sleep(0.05)
    return "done"


def ignore_interrupts(file: Path, begun: Path) -> str:
    """Wait for a file, whatever comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return wait_for(file, begun)


def set_grace(seconds: float) -> float:
    """Set, in a worker of Dask's, how long a cancelled call may go on; how long it was."""
    before: float = vars(dask)["GRACE"]
    vars(dask)["GRACE"] = seconds
    return before


def add_tensor(array: Any) -> Any:
    import tensorflow as tf

    with tf.device("CPU:0"):
        return tf.constant(array) + 1
