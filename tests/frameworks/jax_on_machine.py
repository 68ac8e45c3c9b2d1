"""What the tests run in processes on the simulated machine: each function uses the real JAX there."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tfgpu_magic
from tests.simgpu.on_machine import enter
from tests.sizes import MIB
from tests.waiting import until
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.jax.framework import Jax
from tfgpu_magic.insight.objects.tensors import tensors
from tfgpu_magic.isolate.values import pickling, plain
from tfgpu_magic.model.report import Figure
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.simgpu import Machine


def jax() -> Any:
    """Import JAX, with the simulated machine's plug-in: a process of the tests has not its path from PYTHONPATH."""
    sys.path[:0] = os.environ.get("PYTHONPATH", "").split(os.pathsep)[:1]
    import jax

    return jax


def held() -> list[int]:
    """Return what the driver accounts to this process, in bytes, GPU by GPU."""
    machine = Machine.current()
    assert machine is not None
    return [machine.held(pid=os.getpid(), gpu=gpu.index) for gpu in machine.gpus()]


def array(mebibytes: int, gpu: int = 0) -> Any:
    """Return an array of so much memory, which is on the GPU when this returns."""
    import numpy as np

    module = jax()
    return module.device_put(np.zeros(mebibytes * MIB // 4, np.float32), module.devices()[gpu]).block_until_ready()


def by_steps() -> dict[str, list[int]]:
    """Return what is held after each of JAX's first steps."""
    found = {}
    module = jax()
    found["import"] = held()
    module.devices()
    found["list"] = held()
    kept = array(64)
    found["array"] = held()
    del kept
    found["deleted"] = held()
    return found


def stages() -> list[tuple[Stage, list[int]]]:
    """Return JAX's stage and what is held by then, before each of its first steps and after the last."""
    jax_here = Jax()
    seen = [(jax_here.stage(), held())]
    module = jax()
    seen.append((jax_here.stage(), held()))
    module.devices()
    return [*seen, (jax_here.stage(), held())]


def told(steps: Sequence[str]) -> tuple[str, list[int]]:
    """Go through steps, each ``import``, ``list``, ``use`` or words for every framework.

    Returns:
        What the last words were refused with, and what is held.
    """
    refused, kept = "", []
    for step in steps:
        if step == "import":
            jax()
        elif step == "list":
            jax().devices()
        elif step == "use":
            kept.append(array(64))
        else:
            try:
                tfgpu_magic.apply(step, frameworks="all")
            except tfgpu_magic.Refused as error:
                refused = str(error)
    return refused, held()


def fill() -> tuple[int, int, str, bool]:
    """Allocate until JAX refuses: the bytes given, what the driver accounts, the error and whether it is known."""
    kept: list[Any] = []
    try:
        while True:
            kept.append(array(64))
    except Exception as error:
        return len(kept) * 64 * MIB, held()[0], str(error), registry.out_of_memory(error)


def figures(gpu: int, shown: str = "all") -> tuple[dict[str, tuple[Figure, ...]], list[int]]:
    """Use one GPU; return the figures of all frameworks, and what is held.

    Args:
        gpu: its place among JAX's devices.
        shown: the GPUs that JAX itself is told to use, in CUDA's numbers.
    """
    jax().config.update("jax_cuda_visible_devices", shown)
    kept = [array(64, gpu), array(64, gpu)]
    kept.pop()
    # What is deleted comes back a moment later.
    device = jax().devices()[gpu]
    until(lambda: device.memory_stats()["bytes_in_use"], lambda used: used == 64 * MIB)
    return registry.figures(), held()


def backends() -> list[str]:
    """Return the platforms of JAX's backends."""
    jax().devices()
    return list(sys.modules["jax._src.xla_bridge"]._backends)


def computed() -> tuple[list[str], float]:
    """Compile and run a kernel on the GPU: where its result lies, and its first number."""
    module = jax()
    result = module.jit(lambda x: x * 2 + 1)(array(1))
    return [device.platform for device in result.devices()], float(result[0])


def by_name() -> tuple[dict[str, int], list[tuple[str, int | None]]]:
    """Return MiB of arrays by the names that lead to them, and what is unaccounted of each GPU."""
    main: Any = sys.modules["__main__"]
    main.x = array(64)
    main.pair = {"a": [array(32, 1)]}
    taken = tensors()
    found = {one.name.expression: one.size // MIB for one in taken.holdings}
    return found, [(account.device, account.unaccounted) for account in taken.accounts]


KINDS = ("float32", "bfloat16", "float8_e4m3fn", "int4")


def brought() -> tuple[list[tuple[str, str, list[float], float]], list[tuple[str, str, tuple[int, ...]]], bool]:
    """Return what becomes of arrays and random keys, and whether a key that is made of its data draws the same."""
    module = jax()
    random, numpy = module.random, module.numpy
    key = random.key(5)
    arrays = [numpy.array(content, kind) for kind in KINDS for content in ([1, 2], 3)]
    there = pickling.dump_self_contained([*arrays, key, random.split(key, 3)], reduce=plain.reduce)
    *came, one, several = pickling.load([memoryview(bytearray(part)) for part in there.parts])
    pairs = zip(came[::2], came[1::2], strict=True)
    return (
        [(type(large).__name__, large.dtype.name, [*map(float, large)], float(scalar)) for large, scalar in pairs],
        [(type(data).__name__, data.dtype.name, data.shape) for data in (one, several)],
        bool(random.bits(random.wrap_key_data(one)) == random.bits(key)),
    )


def within(cgroup: Path, words: str) -> list[int]:
    """Return what is held after words for every framework and a first array, in a cgroup."""
    enter(cgroup)
    tfgpu_magic.apply(words, frameworks="all")
    array(64)
    return held()
