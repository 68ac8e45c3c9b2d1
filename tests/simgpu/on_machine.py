"""What these tests run in processes on the simulated machine: the CUDA driver, NVML, the real TensorFlow."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.sizes import MIB

NOT_INITIALIZED = 3

THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = range(4, 9)
"""Attributes of a memory pool."""


def cuda(function: str, *args: Any) -> int:
    """Call a function of the CUDA driver, and return its error code."""
    return int(getattr(ctypes.CDLL("libcuda.so.1"), function)(*args))


# --- the CUDA driver ---


def seen() -> tuple[int, list[str]]:
    """Return what cuInit answers, and the UUIDs of the devices that CUDA sees then."""
    outcome = cuda("cuInit", 0)
    count = ctypes.c_int()
    uuids = []
    if not outcome:
        assert cuda("cuDeviceGetCount", ctypes.byref(count)) == 0
    for ordinal in range(count.value):
        raw = (ctypes.c_ubyte * 16)()
        assert cuda("cuDeviceGetUuid_v2", raw, ordinal) == 0
        uuids.append(bytes(raw).hex())
    return outcome, uuids


def told_mode(gpu: int) -> list[int]:
    """Return a GPU's compute mode, as CUDA and as NVML tell it."""
    mode, handle, library = ctypes.c_int(), ctypes.c_void_p(), ctypes.CDLL("libnvidia-ml.so.1")
    assert cuda("cuInit", 0) == library.nvmlInit_v2() == cuda("cuDeviceGetAttribute", ctypes.byref(mode), 20, gpu) == 0
    found = [mode.value]
    assert library.nvmlDeviceGetHandleByIndex_v2(gpu, ctypes.byref(handle)) == 0
    assert library.nvmlDeviceGetComputeMode(handle, ctypes.byref(mode)) == 0
    return [*found, mode.value]


def before_cu_init() -> list[int]:
    """Return what the driver answers before cuInit."""
    number = ctypes.c_int()
    return [
        cuda("cuDeviceGetCount", ctypes.byref(number)),
        cuda("cuDeviceGet", ctypes.byref(number), 0),
        cuda("cuDevicePrimaryCtxGetState", 0, ctypes.byref(number), ctypes.byref(number)),
        cuda("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(4096)),
    ]


def after_fork() -> list[int]:
    """Return what a child is answered that was forked after cuInit."""
    assert cuda("cuInit", 0) == 0
    reader, writer = os.pipe()
    if os.fork() == 0:
        number = ctypes.c_int()
        os.write(writer, bytes([cuda("cuInit", 0), cuda("cuDeviceGetCount", ctypes.byref(number))]))
        os._exit(0)
    return list(os.read(reader, 2))


def allocate(*sizes: int, ordinal: int = 0) -> list[int]:
    """Make the primary context, allocate each size in bytes, and return every answer."""
    context, at = ctypes.c_void_p(), ctypes.c_uint64()
    answers = [cuda("cuInit", 0), cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)]
    if any(answers):
        return answers
    cuda("cuCtxSetCurrent", context)
    return answers + [cuda("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size)) for size in sizes]


class Pool:
    """A memory pool of the first GPU: the default one, or one that is made."""

    def __init__(self, *, made: bool = False) -> None:
        assert not any(allocate())
        self.handle = ctypes.c_void_p()
        properties = (ctypes.c_int * 22)(1, 0, 1, 0)  # pinned, not shared, on device 0
        function, which = ("cuMemPoolCreate", properties) if made else ("cuDeviceGetDefaultMemPool", 0)
        assert cuda(function, ctypes.byref(self.handle), which) == 0

    def set(self, attribute: int, size: int) -> int:
        return cuda("cuMemPoolSetAttribute", self.handle, attribute, ctypes.byref(ctypes.c_uint64(size)))

    def get(self, *attributes: int) -> list[int]:
        """Return attributes in MiB."""
        sizes = [ctypes.c_uint64() for _ in attributes]
        for attribute, size in zip(attributes, sizes, strict=True):
            assert cuda("cuMemPoolGetAttribute", self.handle, attribute, ctypes.byref(size)) == 0
        return [size.value // MIB for size in sizes]

    def allocate(self, size: int) -> ctypes.c_uint64:
        at = ctypes.c_uint64()
        length = ctypes.c_size_t(size)
        assert cuda("cuMemAllocFromPoolAsync", ctypes.byref(at), length, self.handle, None) == 0
        return at

    def trim(self, keep: int = 0) -> int:
        return cuda("cuMemPoolTrimTo", self.handle, ctypes.c_size_t(keep))

    def destroy(self) -> int:
        return cuda("cuMemPoolDestroy", self.handle)


def launched() -> int:
    """Launch a kernel on device 0, and return the answer."""
    allocate(MIB)
    return cuda("cuLaunchKernel", None)


def trained() -> float:
    """Compute a step of a model with TensorFlow on device 0."""
    import tensorflow as tf

    weights = tf.Variable(tf.ones([64, 64]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(weights))
    weights.assign_sub(tape.gradient(loss, weights))
    return float(loss)


def mapped(size: int) -> list[int]:
    """Map physical memory to addresses: what is held with it, without its handle, unmapped; and a copy's answer."""
    from tfgpu_magic.simgpu import Machine

    machine = Machine.current()
    assert machine is not None
    allocate()
    properties = (ctypes.c_int * 8)(1, 0, 1, 0)  # pinned, not shared, on device 0
    handle, at, word = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64(7)
    answer = cuda("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), properties, ctypes.c_uint64())
    if answer:
        return [answer]
    length = ctypes.c_size_t(size)
    assert cuda("cuMemAddressReserve", ctypes.byref(at), length, ctypes.c_size_t(), at, ctypes.c_uint64()) == 0
    assert cuda("cuMemMap", at, length, ctypes.c_size_t(), handle, ctypes.c_uint64()) == 0
    found = [machine.held()]
    assert cuda("cuMemRelease", handle) == 0
    found += [machine.held(), cuda("cuMemcpyHtoD_v2", at, ctypes.byref(word), ctypes.c_size_t(8))]
    assert cuda("cuMemUnmap", at, length) == cuda("cuMemAddressFree", at, length) == 0
    return [*found, machine.held()]


def drawn_then_computed() -> tuple[int, int]:
    """Be listed as one that draws, then compute: what this process holds, and what the GPU says is used."""
    from tfgpu_magic.simgpu import Machine

    machine = Machine.current()
    assert machine is not None
    machine.add_row(os.getpid(), 0, "512MiB", "G")
    allocate(256 * MIB)
    return machine.held(), machine.gpus()[0].used


def allocate_and_free(size: int, times: int) -> tuple[int, int]:
    """Allocate and free so often, and tell how often there was room and how much was held at most, by all."""
    from tfgpu_magic.simgpu import Machine

    machine = Machine.current()
    assert machine is not None
    allocate()
    at, most, fitted = ctypes.c_uint64(), 0, 0
    for _ in range(times):
        if cuda("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size)) == 0:
            fitted += 1
            most = max(most, machine.held())
            assert cuda("cuMemFree_v2", at) == 0
    return fitted, most


def context_state() -> list[tuple[int, int]]:
    """Return the primary context's state before it is retained, after, and after it is released: answer and active."""
    context, flags, active = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_int()
    states = []
    cuda("cuInit", 0)
    for step in ("", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"):
        if step:
            cuda(step, *((ctypes.byref(context),) if step.endswith("Retain") else ()), 0)
        answer = cuda("cuDevicePrimaryCtxGetState", 0, ctypes.byref(flags), ctypes.byref(active))
        states.append((answer, active.value))
    return states


def allocate_for_ever() -> None:
    """Allocate and free as fast as can be, so that a kill at any time is likely to hit it holding the lock."""
    allocate()
    at = ctypes.c_uint64()
    while True:
        cuda("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(MIB))
        cuda("cuMemFree_v2", at)


def become_another_program() -> None:
    """Hold memory, and replace the program by one that opens the driver anew."""
    assert allocate(512 * MIB) == [0, 0, 0]
    os.execv(sys.executable, [sys.executable, "-c", "from tests.simgpu.on_machine import *; print(allocate(MIB))"])


# --- NVML ---


def nvml(gpu: int | None, function: str, *args: Any) -> Any:
    """Call a function of pynvml, on a GPU or none; what it answers, or the code of its error."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = [] if gpu is None else [pynvml.nvmlDeviceGetHandleByIndex(gpu)]
        answer = getattr(pynvml, function)(*handle, *args)
    except pynvml.NVMLError as error:
        return error.value
    if isinstance(answer, list):
        return [_row(row) for row in answer]
    return {name: getattr(answer, name) for name, _ in answer._fields_} if hasattr(answer, "_fields_") else answer


def used_before_and_after(pid: int) -> tuple[int, int]:
    """Kill a process, and return what is used of GPU 0 in the moment before, and right after its end."""
    memory = "nvmlDeviceGetMemoryInfo", 0x02000028  # version 2: what is reserved is not among what is used
    before = nvml(0, *memory)["used"]
    ended = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([ended], [], [])
    return before, nvml(0, *memory)["used"]


def _row(row: Any) -> Any:
    """Return a row of a list of processes, or a sample of their utilisation, as plain data."""
    if hasattr(row, "smUtil"):
        return row.pid, row.timeStamp, row.smUtil
    return (row.pid, row.usedGpuMemory) if hasattr(row, "pid") else row


def set_limits(folder: Path, soft: int, hard: int, gpu: int = 0, user: int = 0) -> Any:
    """Limit a cgroup as this user; None, or the code of the error."""
    from pynvml import c_nvmlSetMemoryLimits_v1_t as Limits

    nvml(None, "nvmlDeviceGetCount")  # opens the driver: the other user may not read where it lies
    os.setresuid(user, user, 0)
    return nvml(gpu, "nvmlDeviceSetMemoryLimits_v1", Limits(os.fsencode(folder), soft, hard))


def get_limits(folder: Path, gpu: int = 0) -> Any:
    """Return a cgroup's soft and hard limit and the bytes that count against it, or the code of the error."""
    from pynvml import c_nvmlGetMemoryLimits_v1_t as Limits

    limits = Limits(os.fsencode(folder))
    code = nvml(gpu, "nvmlDeviceGetMemoryLimits_v1", limits)
    return code or (limits.softLimit, limits.hardLimit, limits.currentUsed)


def enter(cgroup: Path) -> None:
    """Go into a cgroup."""
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))


def told_inside(cgroup: Path) -> tuple[Any, Any, list[int]]:
    """Return the memory of GPU 0 as NVML's versions tell it in a cgroup, and total and free as CUDA does."""
    from pynvml import nvmlMemory_v2

    enter(cgroup)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    allocate()
    assert cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)) == 0
    first, second = nvml(0, "nvmlDeviceGetMemoryInfo"), nvml(0, "nvmlDeviceGetMemoryInfo", nvmlMemory_v2)
    return first, second, [total.value, free.value]


def zeros_inside(cgroup: Path, mib: int) -> tuple[str, str]:
    """Have TensorFlow allocate in a cgroup, as `zeros` does."""
    enter(cgroup)
    return zeros(mib)


def timed(function: str, gpu: int) -> float:
    """Return how many seconds a call of pynvml took."""
    start = time.monotonic()
    nvml(gpu, function)
    return time.monotonic() - start


def probe() -> list[tuple[int, int]]:
    """Return what the list of processes answers with no room, with room for one, and for ten: code and count."""
    library, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    assert library.nvmlInit_v2() == 0
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    answers = []
    for room in (0, 1, 10):
        count, rows = ctypes.c_uint(room), (ctypes.c_char * 24 * 10)() if room else None
        code = library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), rows)
        answers.append((code, count.value))
    return answers


# --- TensorFlow ---


def zeros(mib: int, device: str = "GPU:0") -> tuple[str, str]:
    """Have TensorFlow allocate so many MiB; the name of its error and its text, both empty when it could."""
    import tensorflow as tf

    try:
        with tf.device(device):
            globals().setdefault("kept", []).append(tf.zeros(mib * MIB // 4))
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def grown() -> tuple[int, int]:
    """Allocate a little; what the driver says is held, and what TensorFlow says is used."""
    import tensorflow as tf

    from tests.tf.on_machine import held

    zeros(64)
    return sum(held()), tf.config.experimental.get_memory_info("GPU:0")["current"]


def listed() -> list[str]:
    """Return the names of the GPUs that TensorFlow lists."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return [tf.config.experimental.get_device_details(gpu)["device_name"] for gpu in gpus]


def results() -> tuple[list[float], list[float]]:
    """Return what comes back from a GPU that was copied there, and what was computed there in fresh memory."""
    import tensorflow as tf

    with tf.device("GPU:0"):
        copied = tf.constant([1.0, 2.0, 3.0])
        computed = tf.ones(100_000) + tf.ones(100_000)
    return copied.numpy().tolist(), sorted(set(computed.numpy().tolist()))


def fit() -> tuple[int, list[int]]:
    """Train a Keras model on all GPUs; how many replicas, and the weights' sizes."""
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        layers = [tf.keras.Input((16,)), tf.keras.layers.Dense(32, "relu"), tf.keras.layers.Dense(10)]
        model = tf.keras.Sequential(layers)
        model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    x, y = np.random.rand(256, 16).astype("float32"), np.random.randint(0, 10, 256)
    history = model.fit(x, y, batch_size=64, epochs=2, verbose=1)
    assert len(history.history["loss"]) == 2
    return strategy.num_replicas_in_sync, [int(np.prod(weight.shape)) for weight in model.weights]


def fit_layers() -> list[str]:
    """Train a model of each kind of layer that calls another of NVIDIA's libraries; the kinds that trained."""
    import numpy as np
    import tensorflow as tf

    layers = tf.keras.layers
    kinds: dict[str, tuple[tuple[int, ...], list[Any]]] = {
        "convolution": ((12, 12, 1), [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.MaxPooling2D()]),
        "recurrent": ((5, 4), [layers.LSTM(4)]),
        "normalised": ((5, 8), [layers.LayerNormalization(), layers.GlobalAveragePooling1D()]),
    }
    for shape, hidden in kinds.values():
        model = tf.keras.Sequential([tf.keras.Input(shape), *hidden, layers.Flatten(), layers.Dense(1)])
        model.compile("adam", "mse")
        model.fit(np.zeros((32, *shape), "float32"), np.zeros(32, "float32"), verbose=0)
    return list(kinds)
