"""Processes that hold something of a GPU, each by one framework, and have themselves suspended by a driver worker."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.parking.driver_worker import TROUBLES, DriverWorker

import tfgpu_magic
from tests.gpu.observed import brings_back
from tests.simgpu.checkpoint_on_machine import hold, intact
from tests.sizes import GIB, MIB
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.parking import checks, facts
from tfgpu_magic.parking.inside.introspection import of_process

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 512 * MIB
"""The bytes of what each holds: the machine is not ours alone."""
PATIENCE = 60.0
"""Seconds for a call of the driver."""


class Suspended(NamedTuple):
    """What a process saw of its own suspension.

    Attributes:
        framework: the framework and its version; "" without one.
        against: the names of the reasons for which it would not be parked.
        mappings: how often it has mapped the file of managed memory.
        trouble: the call that the driver declined, with the number of its error, or that was not answered; "" if none.
        held: the bytes that the driver listed of it before, and meanwhile; None where it lists it not.
        seconds: seconds out, and back.
        same: whether all is as it was, once it was brought back; None if it was not.
    """

    framework: str
    against: tuple[str, ...]
    mappings: int | None
    trouble: str
    held: tuple[int | None, int | None]
    seconds: tuple[float, float]
    same: bool | None


def suspended(framework: str, prepare: str = "") -> Suspended:
    """Hold something, and be suspended; be brought back where that is allowed.

    Args:
        framework: one of `FRAMEWORKS`.
        prepare: what is done before, one of `PREPARATIONS`.
    """
    same = FRAMEWORKS[framework]()
    goes_on = PREPARATIONS[prepare]() if prepare else lambda: True
    version = "" if framework == "plain" else f"{framework} {sys.modules[framework].__version__}"
    return _suspended(version, lambda: same() and goes_on())


def two_gpus() -> Suspended:
    """Hold something of two GPUs, and be suspended; nothing is brought back there."""
    hold(SIZE)
    hold(SIZE, ordinal=1)
    return _suspended("", None)


def stays_away(size: int) -> str:
    """Hold plain memory, be suspended, and stay so; return what trouble there was."""
    hold(size)
    return _suspended("", None).trouble


def asked_meanwhile(size: int) -> tuple[float, list[str]]:
    """Return the longest time that a query of the state took while plain memory was copied, and the states found."""
    hold(size)
    asking, found, done = DriverWorker(), list[tuple[float, str]](), False

    def ask() -> None:
        while not done:
            begun = time.monotonic()
            state = asking.state(os.getpid(), seconds=PATIENCE)
            found.append((time.monotonic() - begun, state.name))

    thread = Thread(target=ask)
    thread.start()
    _suspended("", None)
    done = True
    thread.join()
    asking.end()
    return max(seconds for seconds, _ in found), list(dict.fromkeys(name for _, name in found))


def _suspended(framework: str, same: Callable[[], bool] | None) -> Suspended:
    pid, worker = os.getpid(), DriverWorker()
    about = facts.read(pid, tfgpu_magic.look(60.0), of_process())
    against = tuple(refusal.reason.name for refusal in checks.refusals(about))
    before, away, trouble, kept, seconds = _listed(), None, "", None, [0.0, 0.0]
    room = {gpu.gpu: checks.placeholder(gpu.size) for gpu in about.known} or {cuda.shown()[0]: 2 * SIZE + GIB}
    try:
        seconds[0] = _out(worker, pid)
        time.sleep(0.5)
        away = _listed()
        if brings_back() and same is not None:
            seconds[1] = _back(worker, pid, room)
            kept = same()
            if facts.open_module() is not False:  # nothing that was brought back may end there
                _out(worker, pid)
    except TROUBLES as error:
        trouble = str(error)
    worker.end()
    return Suspended(framework, against, about.mappings, trouble, (before, away), (seconds[0], seconds[1]), kept)


def _out(worker: DriverWorker, pid: int) -> float:
    begun = time.monotonic()
    worker.call("lock", pid, 10.0, seconds=PATIENCE)
    try:
        worker.call("checkpoint", pid, seconds=PATIENCE)
    except TROUBLES:
        if worker.usable:
            worker.call("unlock", pid, seconds=PATIENCE)
        raise
    return time.monotonic() - begun


def _back(worker: DriverWorker, pid: int, room: dict[str, int]) -> float:
    worker.call("take", room, seconds=PATIENCE)
    begun = time.monotonic()
    worker.call("restore", pid, seconds=PATIENCE)
    worker.call("unlock", pid, seconds=PATIENCE)
    worker.call("let_go", seconds=PATIENCE)
    return time.monotonic() - begun


def _listed() -> int | None:
    """Return what the driver lists of this process; None where it lists it not."""
    rows = [row for row in tfgpu_magic.look(60.0).processes if row.pid == os.getpid()]
    return sum(row.held or 0 for row in rows) if rows else None


# --- what they hold: each returns a function that tells whether it is as it was ---


def _plain() -> Callable[[], bool]:
    hold(SIZE)
    return intact


def _torch() -> Callable[[], bool]:
    import torch

    array = torch.rand(SIZE // 4, device="cuda:0")
    before = array.cpu()
    return lambda: bool((array.cpu() == before).all())


def _jax() -> Callable[[], bool]:
    import jax
    import numpy as np

    array = jax.random.uniform(jax.random.key(0), (SIZE // 4,))
    before = np.asarray(array + 0)
    return lambda: bool((np.asarray(array + 0) == before).all())


def _cupy() -> Callable[[], bool]:
    import cupy  # type: ignore[import-not-found, unused-ignore]
    import numpy as np

    array = cupy.asarray(np.random.rand(SIZE // 16)).repeat(2)
    before = array.get()
    return lambda: bool((array.get() == before).all())


def _numba() -> Callable[[], bool]:
    import numpy as np
    from numba import cuda as numba_cuda  # type: ignore[import-not-found, unused-ignore]

    before = np.random.rand(SIZE // 8)
    array = numba_cuda.to_device(before)
    return lambda: bool((array.copy_to_host() == before).all())


def _tensorflow() -> Callable[[], bool]:
    import tensorflow as tf

    with tf.device("GPU:0"):
        variable = tf.Variable(tf.random.uniform((SIZE // 4,)))
        variable.assign_add(variable)
    before = variable.numpy()
    return lambda: bool((variable.numpy() == before).all())


FRAMEWORKS = {
    "plain": _plain, "tensorflow": _tensorflow, "torch": _torch, "jax": _jax, "cupy": _cupy, "numba": _numba
}  # fmt: skip

# --- what they do before: each returns a function that tells whether they go on ---


def _torch_profiler() -> Callable[[], bool]:
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
        torch.ones(2**20, device="cuda:0").sum().item()
    return lambda: torch.ones(4, device="cuda:0").cpu().shape == (4,)


def _tensorflow_profiler() -> Callable[[], bool]:
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        (tf.ones(2**20) + 1).numpy()
        tf.profiler.experimental.stop()
        assert any(Path(folder).rglob("*.xplane.pb"))
    return lambda: (tf.ones(4) + 1).numpy().shape == (4,)


def _prefetch() -> Callable[[], bool]:
    import tensorflow as tf

    dataset = tf.data.Dataset.range(10**6).map(lambda number: tf.fill((256, 256), number))
    iterator = iter(dataset.apply(tf.data.experimental.prefetch_to_device("/GPU:0", buffer_size=8)))
    for _ in range(20):
        next(iterator)
    return lambda: next(iterator).numpy().shape == (256, 256)


PREPARATIONS = {
    "torch-profiler": _torch_profiler, "tensorflow-profiler": _tensorflow_profiler, "tensorflow-prefetch": _prefetch
}  # fmt: skip
