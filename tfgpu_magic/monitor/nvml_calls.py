"""Calls NVML's functions by their names, as the only module that touches its library. `nvml` makes a snapshot of it.

Every function returns a code (`call`), so that a failing one costs its own figure and nothing else. pynvml finds and
opens the library and names structs and codes; its wrappers are not used, because they make two calls for each list,
raise two families of errors, and gpustat replaces one of them.
"""

from __future__ import annotations

import contextlib
import struct
from ctypes import CDLL, byref, c_uint, create_string_buffer
from typing import TYPE_CHECKING

import pynvml

from tfgpu_magic.monitor import nvml_codes
from tfgpu_magic.monitor.merge import known

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_CORES_PER_MULTIPROCESSOR = {(6, 0): 64, (8, 0): 64} | {(7, minor): 64 for minor in range(10)}
"""The exceptions to 128, by compute capability (CUDA C++ Programming Guide, throughput of arithmetic instructions)."""

_MEMORY, _MEMORY_V2 = struct.Struct("QQQ"), struct.Struct("IQQQQ")
"""nvmlMemory_t (total, free, used) and nvmlMemory_v2_t (version, total, reserved, free, used). To read them as pynvml's
attributes takes as long as the call."""


def start() -> int:
    """Initialise NVML, and return its code."""
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:  # the second is not an NVMLError
        return int(getattr(error, "value", nvml_codes.OTHER_VERSION))
    return nvml_codes.OK


def preload(folders: Iterable[str]) -> bool:
    """Load the driver's library from the first folder that has it; later loads by name then get this one."""
    for folder in folders:
        with contextlib.suppress(OSError):
            CDLL(f"{folder}/libnvidia-ml.so.1")
            return True
    return False


def call(function: str, *arguments: object) -> int:
    """Call a function of NVML by its name, and return its code: "not found" for one that the library lacks."""
    try:
        return int(pynvml._nvmlGetFunctionPointer(function)(*arguments))
    except pynvml.NVMLError as error:
        return int(error.value)


def has(function: str) -> bool:
    """Tell whether the library has a function."""
    try:
        return bool(pynvml._nvmlGetFunctionPointer(function))
    except pynvml.NVMLError:
        return False


def new_handle() -> Any:
    """Return room for a device's handle."""
    return pynvml.c_nvmlDevice_t()


def text(function: str, *of: object) -> str | None:
    """Return the text that a function gives of a device, or of the driver; None where it gives none."""
    buffer = create_string_buffer(96)
    code = call(function, *of, buffer, c_uint(len(buffer)))
    return buffer.value.decode(errors="replace") or None if code == nvml_codes.OK else None


def number(function: str, of: object) -> int | None:
    """Return the number that a function gives of a device; None where it gives none."""
    found = c_uint()
    return found.value if call(function, of, byref(found)) == nvml_codes.OK else None


def memory(of: object) -> tuple[int, dict[str, Any]]:
    """Read the memory of a device; return NVML's code, and the known fields of `Gpu`, in bytes."""
    figures = pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2)
    code = call("nvmlDeviceGetMemoryInfo_v2", of, byref(figures))
    if code in (nvml_codes.MISSING, nvml_codes.NOT_SUPPORTED, nvml_codes.OTHER_VERSION):
        figures = pynvml.c_nvmlMemory_t()
        code = call("nvmlDeviceGetMemoryInfo", of, byref(figures))
        total, free, used = _MEMORY.unpack(figures)
        reserved = None
    else:
        _, total, reserved, free, used = _MEMORY_V2.unpack(figures)
    if code != nvml_codes.OK:
        return code, {}
    return code, {
        "total": known(total), "used": known(used), "free": known(free), "reserved": reserved and known(reserved)
    }  # fmt: skip


def rates(of: object) -> dict[str, Any]:
    """Read the utilisation of a device, as a field of `Gpu`."""
    found = pynvml.c_nvmlUtilization_t()
    code = call("nvmlDeviceGetUtilizationRates", of, byref(found))
    return {"utilisation": percent if code == nvml_codes.OK and (percent := found.gpu) <= 100 else None}


def sensors(of: object) -> dict[str, Any]:
    """Read the temperature and the power of a device, as fields of `Gpu`. To ask for the power takes long."""
    celsius = c_uint()
    code = call("nvmlDeviceGetTemperature", of, c_uint(pynvml.NVML_TEMPERATURE_GPU), byref(celsius))
    return {
        "temperature": celsius.value if code == nvml_codes.OK else None,
        "power": number("nvmlDeviceGetPowerUsage", of),
    }


def multiprocessors(of: object, capability: tuple[int, int] | None) -> int | None:
    """Count a device's multiprocessors: NVML has a GPU's cores, and an instance's multiprocessors."""
    part = pynvml.c_nvmlDeviceAttributes()
    if call("nvmlDeviceGetAttributes_v2", of, byref(part)) == nvml_codes.OK and part.multiprocessorCount:
        return int(part.multiprocessorCount)
    cores = number("nvmlDeviceGetNumGpuCores", of)
    if not cores or capability is None or not (6, 0) <= capability < (13, 0):
        return None
    return cores // _CORES_PER_MULTIPROCESSOR.get(capability, 128)
