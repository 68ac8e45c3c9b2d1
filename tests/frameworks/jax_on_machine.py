"""What the tests run in processes on the simulated machine, with the real JAX there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import tfgpu_magic
from tests.simgpu.on_machine import enter
from tests.sizes import MIB
from tests.tf.on_machine import held


def jax() -> Any:
    """Import JAX, with the simulated machine's plug-in: a process of the tests has not its path from PYTHONPATH."""
    sys.path[:0] = os.environ.get("PYTHONPATH", "").split(os.pathsep)[:1]
    import jax

    return jax


def array(mebibytes: int, gpu: int = 0) -> Any:
    """Return an array of so much memory, which is on the GPU when this returns."""
    import numpy as np

    module = jax()
    return module.device_put(np.zeros(mebibytes * MIB // 4, np.float32), module.devices()[gpu]).block_until_ready()


def within(cgroup: Path, words: str) -> list[int]:
    """Return what is held after words for every framework and a first array, in a cgroup."""
    enter(cgroup)
    tfgpu_magic.apply(words, frameworks="all")
    array(64)
    return held()
