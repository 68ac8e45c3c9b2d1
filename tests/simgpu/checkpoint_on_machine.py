"""What these tests do with checkpoints in programs on the simulated machine: as their callers, and as what is moved."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import resource
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

from tests.simgpu.on_machine import RESERVED, THRESHOLD, USED, Pool, allocate, cuda, nvml, seen
from tests.sizes import GIB, MIB

__all__ = ["GIB", "MIB", "allocate", "cuda", "listen", "nvml", "seen"]

RUNNING, LOCKED, CHECKPOINTED, FAILED, CHECKPOINTING, RESTORING = range(6)
OK, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = range(4)
UNAVAILABLE = 46
NOT_FOUND = 500
OPERATING_SYSTEM, ILLEGAL_STATE, NOT_READY, LAUNCH_FAILED, NOT_SUPPORTED = 304, 401, 600, 719, 801


def listen() -> None:
    """Evaluate each line, and print its value as JSON."""
    for line in sys.stdin:
        print(json.dumps(eval(line, globals())), flush=True)  # lines of the test itself


# --- the caller ---


def state(pid: int) -> tuple[int, int]:
    """Return what the query answers, and the state."""
    cuda("cuInit", 0)
    found = ctypes.c_int(-1)
    return cuda("cuCheckpointProcessGetState", pid, ctypes.byref(found)), found.value


def thread_of(pid: int) -> tuple[int, int]:
    """Return what is answered, and the restore thread's id."""
    cuda("cuInit", 0)
    found = ctypes.c_int(-1)
    return cuda("cuCheckpointProcessGetRestoreThreadId", pid, ctypes.byref(found)), found.value


def call(step: str, pid: int, *words: int) -> int:
    """Do a step: Lock (with a timeout in ms), Checkpoint, Restore, Unlock; `words` begin its argument."""
    cuda("cuInit", 0)
    return cuda(f"cuCheckpointProcess{step}", pid, (ctypes.c_uint32 * 16)(*words) if words else None)


def calls(pid: int, *steps: str) -> list[int]:
    return [call(step, pid) for step in steps]


def park(pid: int) -> list[int]:
    return calls(pid, "Lock", "Checkpoint")


def restore_to(pid: int, old: str, new: str) -> int:
    """Restore what was on a GPU to another one, both by their UUIDs."""
    pair = ctypes.create_string_buffer(b"".join(uuid.UUID(name.removeprefix("GPU-")).bytes for name in (old, new)), 32)
    words = (ctypes.c_uint64 * 8)(ctypes.addressof(pair), 1)
    return cuda("cuCheckpointProcessRestore", pid, words)


def unpark(pid: int) -> list[int]:
    return calls(pid, "Restore", "Unlock")


def locks_in_vain(pid: int) -> bool:
    """Tell whether a lock gives up after a millisecond; one that does not is undone."""
    answer = call("Lock", pid, 1)
    return bool(answer == NOT_READY or call("Unlock", pid))


def cycle(pid: int, times: int) -> int:
    """Park and unpark so often, and return how often a call failed."""
    return sum(any(park(pid) + unpark(pid)) for _ in range(times))


class PerDevice(ctypes.Structure):
    _fields_ = (("at", ctypes.c_uint64), ("size", ctypes.c_size_t), ("stream", ctypes.c_void_p))


class CustomInfo(ctypes.Structure):
    _fields_ = (("handle", ctypes.c_void_p), ("device", ctypes.POINTER(PerDevice)), ("devices", ctypes.c_uint))


_operation: list[CustomInfo] = []
_stored: list[bytes] = []


def begin_custom(step: str, pid: int) -> int:
    """Begin a Checkpoint or a Restore whose copies this process makes."""
    cuda("cuInit", 0)
    at = ctypes.POINTER(CustomInfo)()
    words = (ctypes.c_uint64 * 8)()
    words[0 if step == "Checkpoint" else 2] = ctypes.addressof(at)
    answer = cuda(f"cuCheckpointProcess{step}", pid, words)
    _operation[:] = [] if answer else [at.contents]
    return answer


def store() -> list[int]:
    """Copy what is mapped, and return the sizes."""
    devices = [_operation[0].device[number] for number in range(_operation[0].devices)]
    for one in devices:
        data = ctypes.create_string_buffer(one.size)
        assert cuda("cuMemcpyDtoH_v2", data, ctypes.c_uint64(one.at), ctypes.c_size_t(one.size)) == 0
        _stored.append(data.raw)
    return [one.size for one in devices]


def give_back() -> list[int]:
    """Copy what was stored to what is mapped."""
    devices = [_operation[0].device[number] for number in range(_operation[0].devices)]
    return [
        cuda("cuMemcpyHtoD_v2", ctypes.c_uint64(one.at), data, ctypes.c_size_t(one.size))
        for one, data in zip(devices, _stored, strict=True)
    ]


def complete() -> int:
    """Say that all is copied, through the address that is told for CUDA 13.4."""
    function, found = ctypes.c_void_p(), ctypes.c_int()
    version, flags = 13040, ctypes.c_uint64()
    name = b"cuCheckpointOperationComplete"
    answer = cuda("cuGetProcAddress_v2", name, ctypes.byref(function), version, flags, ctypes.byref(found))
    if answer or not function:
        return answer
    return int(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function.value or 0)(_operation[0].handle))


# --- what is moved ---

_kept: dict[int, str] = {}
_pools: list[Pool] = []


def hold(size: int, *, ordinal: int = 0, function: str = "cuMemAlloc_v2") -> int:
    """Allocate so much, with something written at both ends, and return the address."""
    assert not any(allocate(ordinal=ordinal))
    at = ctypes.c_uint64()
    more = (1,) if function == "cuMemAllocManaged" else ()
    assert cuda(function, ctypes.byref(at), ctypes.c_size_t(size), *more) == 0
    for offset in (0, size - MIB):
        write(at.value + offset, os.urandom(MIB))
    return at.value


def hold_plain(size: int) -> int:
    return hold(size)


def hold_pool(size: int) -> int:
    """Hold memory of a pool."""
    at = Pool().allocate(size).value
    write(at, os.urandom(MIB))
    return at


def hold_more_than_used(used: int, unused: int, *, waits: bool = True) -> int:
    """Hold memory of a pool that keeps some more reserved, all of which nobody uses once somebody waits for it."""
    pool = Pool()
    pool.set(THRESHOLD, used + unused if waits else 0)
    at, spare = pool.allocate(used), pool.allocate(unused)
    assert cuda("cuMemFreeAsync", spare, None) == 0
    assert not waits or synchronise("context") == 0
    write(at.value, os.urandom(MIB))
    _pools.append(pool)
    return at.value


def pool() -> list[int]:
    """Return what the pool reserves and what is used of it, in MiB."""
    return _pools[-1].get(RESERVED, USED)


def trim() -> int:
    return _pools[-1].trim()


def hold_mapped(size: int) -> int:
    """Hold physical memory that is mapped to addresses."""
    assert not any(allocate())
    properties = (ctypes.c_int * 8)(1, 0, 1, 0)  # pinned, not shared, on device 0
    handle, at, nothing = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    length = ctypes.c_size_t(size)
    assert cuda("cuMemCreate", ctypes.byref(handle), length, properties, nothing) == 0
    assert cuda("cuMemAddressReserve", ctypes.byref(at), length, nothing, nothing, nothing) == 0
    assert cuda("cuMemMap", at, length, nothing, handle, nothing) == 0
    write(at.value, os.urandom(MIB))
    return at.value


def write(at: int, data: bytes) -> None:
    assert cuda("cuMemcpyHtoD_v2", ctypes.c_uint64(at), data, ctypes.c_size_t(len(data))) == 0
    _kept[at] = hashlib.sha256(data).hexdigest()


def copied(at: int) -> int:
    """Copy a little from the device, and return the answer."""
    return cuda("cuMemcpyDtoH_v2", ctypes.create_string_buffer(64), ctypes.c_uint64(at), ctypes.c_size_t(64))


def intact() -> bool:
    """Tell whether all that was written reads as it was."""

    def read(at: int) -> str:
        data = ctypes.create_string_buffer(MIB)
        assert cuda("cuMemcpyDtoH_v2", data, ctypes.c_uint64(at), ctypes.c_size_t(MIB)) == 0
        return hashlib.sha256(data.raw).hexdigest()

    return all(read(at) == digest for at, digest in _kept.items())


def look(at: int) -> int:
    """Read a byte of the device's memory without the driver."""
    return ctypes.string_at(at, 1)[0]


def synchronise(what: str) -> int:
    """Wait for the context, a stream or an event, or for the device through the CUDA runtime."""
    if what == "runtime":
        return int(ctypes.CDLL("libcudart.so.12").cudaDeviceSynchronize())
    handle = ctypes.c_void_p()
    if what == "event":
        cuda("cuEventCreate", ctypes.byref(handle), 0)
    names = {"context": "cuCtxSynchronize", "stream": "cuStreamSynchronize", "event": "cuEventSynchronize"}
    return cuda(names[what], *([] if what == "context" else [handle]))


def bus_id(ordinal: int) -> str:
    text = ctypes.create_string_buffer(32)
    assert cuda("cuDeviceGetPCIBusId", text, 32, ordinal) == 0
    return text.value.decode()


def launch(*, beside: bool = False) -> int:
    """Launch a kernel, beside everything else if that is wanted."""
    if not beside:
        return cuda("cuLaunchKernel", *[None] * 11)
    context = ctypes.c_void_p()
    cuda("cuCtxGetCurrent", ctypes.byref(context))

    def run() -> None:
        cuda("cuCtxSetCurrent", context)
        launch()

    threading.Thread(target=run, daemon=True).start()
    return 0


def gemm() -> int:
    return int(ctypes.CDLL("libcublas.so.12").cublasSgemm_v2())


def work_for_ever() -> None:
    """Allocate, copy and free in four threads, for as long as the process lives."""
    context = ctypes.c_void_p()
    cuda("cuCtxGetCurrent", ctypes.byref(context))

    def work() -> None:
        cuda("cuCtxSetCurrent", context)
        data, back = os.urandom(MIB), ctypes.create_string_buffer(MIB)
        at, size = ctypes.c_uint64(), ctypes.c_size_t(MIB)
        while True:
            codes = [cuda("cuMemAlloc_v2", ctypes.byref(at), size), cuda("cuMemcpyHtoD_v2", at, data, size)]
            codes += [cuda("cuMemcpyDtoH_v2", back, at, size), cuda("cuMemFree_v2", at)]
            if any(codes) or back.raw != data:
                os._exit(9)

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()


def start_nccl() -> int:
    return int(ctypes.CDLL("libnccl.so.2").ncclCommInitAll((ctypes.c_void_p * 1)(), 1, None))


def unload_nvml(*, shut_down: bool) -> int:
    """Use NVML, and unload its library; whether the machine's own is gone is told by the last call's answer."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    answer = library.nvmlInit_v2() or (library.nvmlShutdown() if shut_down else 0)
    close: Any = ctypes.CDLL(None).dlclose
    close.argtypes = [ctypes.c_void_p]
    return int(answer or close(library._handle))


# --- TensorFlow ---

_models: list[Any] = []


def train() -> str:
    """Train a Keras model whose weights are random, for two epochs more if there is one, and return its digest."""
    import numpy as np
    import tensorflow as tf

    if not _models:
        layers = [tf.keras.Input((16,)), tf.keras.layers.Dense(512, "relu"), tf.keras.layers.Dense(10)]
        model = tf.keras.Sequential(layers)
        model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.set_weights([np.random.rand(*weight.shape).astype("float32") for weight in model.get_weights()])
        _models.append(model)
    x, y = np.random.rand(256, 16).astype("float32"), np.random.randint(0, 10, 256)
    _models[0].fit(x, y, batch_size=64, epochs=2, verbose=0)
    return digest()


def digest() -> str:
    """Return the SHA-256 of the model's weights and of its optimizer's variables."""
    variables = [*_models[0].weights, *_models[0].optimizer.variables]
    return hashlib.sha256(b"".join(variable.numpy().tobytes() for variable in variables)).hexdigest()


# --- what the host sees of a process ---


def uvm_mappings(pid: int) -> int:
    return Path(f"/proc/{pid}/maps").read_text().count("nvidia-uvm")


def resident(pid: int) -> int:
    """Return the bytes that are in the host's memory for a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
