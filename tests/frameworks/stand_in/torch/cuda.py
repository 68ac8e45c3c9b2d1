"""`torch.cuda`, as far as it is needed: it starts late, grows, keeps what it has, and heeds a fraction.

As a release before 2.10 (`TORCH_STAND_IN`), it goes to the GPU whose fraction is read or set, and makes a context.
"""

import contextlib
import ctypes
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

_initialized = _initializing = False
_current = 0
_moves = os.environ.get("TORCH_STAND_IN", "2.13") in ("2.6", "2.7", "2.8", "2.9")
_queued: list[Callable[[], None]] = []
_fractions: dict[int, float] = {}
_blocks: dict[int, list[tuple[ctypes.c_uint64, int]]] = defaultdict(list)
_now: dict[str, Counter[int]] = {"allocated": Counter(), "reserved": Counter()}
_peak: dict[str, Counter[int]] = {"allocated": Counter(), "reserved": Counter()}
_library = ctypes.CDLL(None)


class OutOfMemoryError(RuntimeError):
    """What PyTorch raises, with the beginning of its text."""

    def __init__(self, size: int, device: int) -> None:
        total = get_device_properties(device).total_memory
        super().__init__(
            f"CUDA out of memory. Tried to allocate {size / 2**30:.2f} GiB. GPU {device} has a total capacity of "
            f"{total / 2**30:.2f} GiB of which 0 bytes is free."
        )


def is_initialized() -> bool:
    return _initialized


def _lazy_call(function: Callable[[], None]) -> None:
    if _initialized:
        function()
    else:
        _queued.append(function)


def _lazy_init() -> None:
    global _initialized, _initializing, _library
    if _initialized or _initializing:
        return
    _initializing = True
    _library = ctypes.CDLL("libcuda.so.1")
    if _library.cuInit(0) or not device_count():
        _initializing = False
        raise RuntimeError("No CUDA GPUs are available")
    options = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF", "")
    found = re.search(r"per_process_memory_fraction:([0-9.]+)", options)
    for device in range(device_count()):
        _fractions[device] = float(found[1]) if found else 1.0
    for function in _queued:
        function()
    _initialized, _initializing = True, False


def device_count() -> int:
    count = ctypes.c_int()
    _library.cuDeviceGetCount(ctypes.byref(count))
    return count.value


def current_device() -> int:
    _lazy_init()
    return _current


def set_device(device: int) -> None:
    global _current
    _lazy_init()
    context = ctypes.c_void_p()
    _library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    _library.cuCtxSetCurrent(context)
    _current = device


@contextlib.contextmanager
def device(device: int) -> Iterator[None]:
    """Have another GPU be the current one; this makes no context."""
    global _current
    _lazy_init()
    before, _current = _current, device
    try:
        yield
    finally:
        _current = before


def set_per_process_memory_fraction(fraction: float, device: int) -> None:
    _lazy_init()
    assert isinstance(fraction, float)
    assert 0 <= fraction <= 1
    if _moves:
        set_device(device)
    _fractions[device] = fraction


def memory_stats_as_nested_dict(device: int | None = None) -> dict[str, Any]:
    number = current_device() if device is None else device

    def told(what: str) -> dict[str, dict[str, int]]:
        return {"all": {"current": _now[what][number], "peak": _peak[what][number]}}

    return {
        "num_ooms": 0,
        "allocated_bytes": told("allocated"),
        "reserved_bytes": told("reserved"),
        "reserved_bytes_by_private_pools": {(0, 1): told("allocated")},
    }


def reset_peak_memory_stats(device: int | None = None) -> None:
    number = current_device() if device is None else device
    for what, sizes in _now.items():
        _peak[what][number] = sizes[number]


def empty_cache() -> None:
    """Give back the blocks of which nothing is in use, as far as the newest are such."""
    for number, blocks in _blocks.items():
        while blocks and _now["reserved"][number] - blocks[-1][1] >= _now["allocated"][number]:
            pointer, size = blocks.pop()
            _library.cuMemFree_v2(pointer)
            _count("reserved", number, -size)


def get_per_process_memory_fraction(device: int) -> float:
    _lazy_init()
    if _moves:
        set_device(device)
    return _fractions[device]


def get_device_properties(device: int) -> SimpleNamespace:
    total = ctypes.c_size_t()
    _library.cuDeviceTotalMem_v2(ctypes.byref(total), device)
    return SimpleNamespace(total_memory=total.value)


class Memory:
    """Bytes of a GPU, within its fraction; what it had stays reserved when it is gone."""

    _of: "tuple[int, int] | None" = None

    def __init__(self, size: int, device: int) -> None:
        _lazy_init()
        if (more := _now["allocated"][device] + size - _now["reserved"][device]) > 0:
            self._reserve(more, device)
        _count("allocated", device, size)
        self._of = device, size

    def __del__(self) -> None:
        if self._of is not None:
            device, size = self._of
            _count("allocated", device, -size)

    def _reserve(self, size: int, device: int) -> None:
        context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
        _library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        _library.cuCtxSetCurrent(context)
        most = _fractions[device] * get_device_properties(device).total_memory
        if _now["reserved"][device] + size > most or _library.cuMemAlloc_v2(
            ctypes.byref(pointer), ctypes.c_size_t(size)
        ):
            raise OutOfMemoryError(size, device)
        _blocks[device].append((pointer, size))
        _count("reserved", device, size)


def _count(what: str, device: int, size: int) -> None:
    _now[what][device] += size
    _peak[what][device] = max(_peak[what][device], _now[what][device])
