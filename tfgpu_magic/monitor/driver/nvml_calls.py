"""Calls NVML's functions, as the only module that touches its library, and puts its errors in words for people.

Every function returns a code (`call`), so that a failing one costs its own figure and nothing else. pynvml finds and
opens the library and names structs and codes; its wrappers are not used, because they make two calls for each list,
raise two families of errors, and gpustat replaces one of them.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from ctypes import CDLL, byref, c_uint, create_string_buffer
from types import SimpleNamespace
from typing import TYPE_CHECKING

# It imports this for Windows, and with it subprocess, shutil and tempfile: a seventh of a look, which is one process.
_UNUSED = "ctypes.util"
with contextlib.ExitStack() as _stack:
    if _UNUSED not in sys.modules:
        sys.modules[_UNUSED] = SimpleNamespace(find_library=None)  # type: ignore[assignment]
        _stack.callback(sys.modules.pop, _UNUSED)
    import pynvml

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

OK = 0
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
TOO_SMALL = 7
NO_LIBRARY = 12
MISSING = 13
LOST = (15, 16, 999)
OTHER_VERSION = 25
NO_GPU = 28

ABSENT = (9, NO_LIBRARY, NO_GPU)
"""Codes that mean that there is nothing to read here, as opposed to a failure."""

_START = {
    4: "The NVIDIA driver refused: NVML was started without permission. Ask for access to /dev/nvidia*.",
    9: "The NVIDIA driver is not loaded: its library was opened, and no kernel module answered. "
    "Load it (modprobe nvidia) until nvidia-smi lists the GPUs.",
    NO_LIBRARY: "No NVIDIA driver was found: its library libnvidia-ml.so.1 could not be opened. "
    "Install the driver, or start the container with its GPUs (docker run --gpus all ...).",
    18: "The NVIDIA driver changed under the running system: its library and its kernel module are of different "
    "versions. Reload the module, or reboot.",
    OTHER_VERSION: "The NVIDIA driver's library is of a version that nvidia-ml-py does not know. Update nvidia-ml-py.",
    NO_GPU: "The NVIDIA driver answers, and lists no GPU. Check nvidia-smi, and that the container was given GPUs.",
}

_GPU = {
    3: "the driver does not support it on this GPU",
    4: "the driver gives no permission to read it",
    10: "the driver's answer took too long",
    15: "the GPU is lost. Others go on",
    16: "the GPU needs a reset. Others go on",
    999: "the driver does not know what is wrong (unknown error)",
}

NOT_AVAILABLE = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE: a figure on Windows, WSL and some virtual GPUs."""

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
        return int(getattr(error, "value", OTHER_VERSION))
    return OK


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
    return buffer.value.decode(errors="replace") or None if code == OK else None


def number(function: str, of: object) -> int | None:
    """Return the number that a function gives of a device; None where it gives none."""
    found = c_uint()
    return found.value if call(function, of, byref(found)) == OK else None


def memory(of: object) -> tuple[int, dict[str, Any]]:
    """Read the memory of a device; return NVML's code, and the known fields of `Gpu`, in bytes."""
    figures = pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2)
    code = call("nvmlDeviceGetMemoryInfo_v2", of, byref(figures))
    if code in (MISSING, NOT_SUPPORTED, OTHER_VERSION):
        figures = pynvml.c_nvmlMemory_t()
        code = call("nvmlDeviceGetMemoryInfo", of, byref(figures))
        total, free, used = _MEMORY.unpack(figures)
        reserved = None
    else:
        _, total, reserved, free, used = _MEMORY_V2.unpack(figures)
    if code != OK:
        return code, {}
    return code, {
        "total": _known(total), "used": _known(used), "free": _known(free), "reserved": reserved and _known(reserved)
    }  # fmt: skip


def _known(size: int) -> int | None:
    """Return NVML's figure in bytes, or None where it is "not available"."""
    return None if size == NOT_AVAILABLE else size


def rates(of: object) -> dict[str, Any]:
    """Read the utilisation of a device, as a field of `Gpu`."""
    found = pynvml.c_nvmlUtilization_t()
    code = call("nvmlDeviceGetUtilizationRates", of, byref(found))
    return {"utilisation": percent if code == OK and (percent := found.gpu) <= 100 else None}


def sensors(of: object) -> dict[str, Any]:
    """Read the temperature and the power of a device, as fields of `Gpu`. To ask for the power takes long."""
    celsius = c_uint()
    code = call("nvmlDeviceGetTemperature", of, c_uint(pynvml.NVML_TEMPERATURE_GPU), byref(celsius))
    return {
        "temperature": celsius.value if code == OK else None,
        "power": number("nvmlDeviceGetPowerUsage", of),
    }


def multiprocessors(of: object, capability: tuple[int, int] | None) -> int | None:
    """Count a device's multiprocessors: NVML has a GPU's cores, and an instance's multiprocessors."""
    part = pynvml.c_nvmlDeviceAttributes()
    if call("nvmlDeviceGetAttributes_v2", of, byref(part)) == OK and part.multiprocessorCount:
        return int(part.multiprocessorCount)
    cores = number("nvmlDeviceGetNumGpuCores", of)
    if not cores or capability is None or not (6, 0) <= capability < (13, 0):
        return None
    return cores // _CORES_PER_MULTIPROCESSOR.get(capability, 128)


def starting(code: int) -> str:
    """Say why NVML did not start or counts no GPUs, and what to do."""
    return _START.get(code, f"NVML does not start: it answered with error {code}. Check that nvidia-smi works.")


def reading(code: int) -> str:
    """Say why a figure of one GPU is missing, in half a sentence."""
    return _GPU.get(code, f"the driver answers with error {code}")


def invalid(labels: list[str]) -> str:
    """Say on which GPUs rows were left out."""
    return (
        f"The driver's list of processes is invalid on GPU {', '.join(labels)}: "
        "rows that cannot be are left out. Another version of the driver may give them right."
    )
