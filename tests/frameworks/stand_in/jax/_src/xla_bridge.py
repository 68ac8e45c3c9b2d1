"""JAX's backends, as far as they are needed."""

import ctypes
import os

_backends: dict[str, "Backend"] = {}
_plugins_registered = False


class Device:
    """A GPU with a pool."""

    def __init__(self, number: int, limit: int, in_use: int) -> None:
        self.local_hardware_id = number
        self._stats = {"bytes_in_use": in_use, "peak_bytes_in_use": limit, "bytes_limit": limit}

    def memory_stats(self) -> dict[str, int]:
        return self._stats


class Backend:
    """The GPUs, each with a pool that is taken at once or not at all."""

    def __init__(self, fraction: float, preallocate: bool) -> None:
        library = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if library.cuInit(0) == 0:  # else there is no GPU
            library.cuDeviceGetCount(ctypes.byref(count))
        self._devices = []
        for number in range(count.value):
            context, total, pointer = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_uint64()
            library.cuDevicePrimaryCtxRetain(ctypes.byref(context), number)
            library.cuCtxSetCurrent(context)
            library.cuDeviceTotalMem_v2(ctypes.byref(total), number)
            limit = int(fraction * total.value)
            if preallocate:
                assert library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(limit)) == 0
            self._devices.append(Device(number, limit, 0))

    def local_devices(self) -> list[Device]:
        return self._devices


def backends() -> dict[str, Backend]:
    """Start the backends once."""
    global _plugins_registered
    if not _backends and os.environ.get("JAX_PLATFORMS") == "cpu":
        _backends["cpu"] = Backend.__new__(Backend)
    if not _backends:
        names = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
        given = [os.environ[name] for name in names if os.environ.get(name)]
        assert len(given) < 2, "both are set"
        preallocate = os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "true") not in ("0", "false", "False")
        _plugins_registered = True
        _backends["cuda"] = Backend(float(given[0]) if given else 0.75, preallocate)
    return _backends
