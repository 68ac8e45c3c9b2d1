"""What the isolated cells and calls do whose parking is tried: they train, and make way between two steps."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np

import tfgpu_magic
from tests.simgpu.checkpoint_on_machine import digest, train


def work(end: str, *, points: bool = True, thread: bool = False) -> tuple[str, int]:
    """Train the same model in every process until a file is there; return its digest, and how often it was parked."""
    import tensorflow as tf

    np.random.seed(1)
    tf.random.set_seed(1)
    train()
    Path(f"{end}-begun").write_text(digest())
    if thread:
        threading.Thread(target=time.sleep, args=(1e6,), name="my-thread", daemon=True).start()
    times = 0
    try:
        while not Path(end).exists():
            times += points and tfgpu_magic.make_way()
            time.sleep(0.02)
    except KeyboardInterrupt:
        Path(f"{end}-saved").write_text(digest())
        raise
    train()
    return digest(), times


def fill() -> str:
    """Train in the room that another call has made."""
    return train()
