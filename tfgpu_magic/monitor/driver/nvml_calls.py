"""Calls NVML's functions, as the only module that touches its library, and puts its errors in words for people.

Every function returns a code (`call`), so that a failing one costs its own figure and nothing else. pynvml is not used:
to import it takes a third of a look, which is one process, and other packages share and patch it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from ctypes import CDLL, addressof, byref, c_char_p, c_uint, c_void_p, create_string_buffer
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.host import SIMULATED
from tfgpu_magic.model.said import say

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class Sensor(NamedTuple):
    """How a sensor of a GPU is read.

    Attributes:
        function: NVML's.
        arguments: what it takes beside the device.
        per: by how much what it gives is divided.
        most: beyond this it gives nonsense.
        often: whether it is read each time, and not with the graphics processes alone.
    """

    function: str
    arguments: tuple[int, ...] = ()
    per: int = 1
    most: float = float("inf")
    often: bool = False


SENSORS = {
    "utilisation": Sensor("nvmlDeviceGetUtilizationRates", most=100, often=True),
    "temperature": Sensor("nvmlDeviceGetTemperature", (0,)),  # NVML_TEMPERATURE_GPU
    "power": Sensor("nvmlDeviceGetPowerUsage", per=1000),  # to ask for it takes long
}
"""The sensors that are read, in percent, degrees Celsius and watts, by the names that every view has for them."""

LIBRARY = "libnvidia-ml.so.1"
DEVICE, MODULE = "/dev/nvidiactl", "/proc/driver/nvidia/version"
"""The file by which the driver's libraries reach the kernel module, and one that is there while that is loaded."""

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
    4: say("The NVIDIA driver refused: NVML was started without permission. Ask for access to /dev/nvidia*."),
    9: say(
        "The NVIDIA driver is not loaded: its library was opened, and no kernel module answered. "
        "Load it (modprobe nvidia) until nvidia-smi lists the GPUs."
    ),
    NO_LIBRARY: say(
        "No NVIDIA driver was found: its library {library} could not be opened. "
        "Install the driver, or start the container with its GPUs (docker run --gpus all ...).",
        library=LIBRARY,
    ),
    18: say(
        "The NVIDIA driver changed under the running system: its library and its kernel module are of different "
        "versions. Reload the module, or reboot."
    ),
    NO_GPU: say(
        "The NVIDIA driver answers, and lists no GPU. Check nvidia-smi, and that the container was given GPUs."
    ),
}

_GPU = {
    3: say("the driver does not support it on this GPU"),
    4: say("the driver gives no permission to read it"),
    10: say("the driver's answer took too long"),
    15: say("the GPU is lost. Others go on"),
    16: say("the GPU needs a reset. Others go on"),
    999: say("the driver does not know what is wrong (unknown error)"),
}

NOT_AVAILABLE = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE: a figure on Windows, WSL and some virtual GPUs."""

_CORES_PER_MULTIPROCESSOR = {(6, 0): 64, (8, 0): 64} | {(7, minor): 64 for minor in range(10)}
"""The exceptions to 128, by compute capability (CUDA C++ Programming Guide, throughput of arithmetic instructions)."""

_MEMORY, _MEMORY_V2 = struct.Struct("QQQ"), struct.Struct("IQQQQ")
"""nvmlMemory_t (total, free, used) and nvmlMemory_v2_t (version, total, reserved, free, used)."""

_LIMITS = struct.Struct("PQQQ")
"""nvmlGetMemoryLimits_v1_t (a cgroup's folder, soft limit, hard limit, used), from driver 615 on."""

_VERSION_2 = 2 << 24 | _MEMORY_V2.size
"""nvmlMemory_v2, which asks for the second one."""

_library: CDLL | None = None
"""The driver's library, once it was opened."""


def start() -> int:
    """Open the library unless it is open, initialise NVML, and return its code."""
    global _library
    try:
        _library = _library or CDLL(LIBRARY)
    except OSError:
        return NO_LIBRARY
    return call("nvmlInitWithFlags", c_uint(0))


def preload(folders: Iterable[str]) -> bool:
    """Load the driver's library from the first folder that has it; later loads by name then get this one."""
    for folder in folders:
        with contextlib.suppress(OSError):
            CDLL(f"{folder}/{LIBRARY}")
            return True
    return False


def call(function: str, *arguments: object) -> int:
    """Call a function of NVML by its name, and return its code: "not found" for one that the library lacks."""
    found = getattr(_library, function, None)
    return MISSING if found is None else int(found(*arguments))


def has(function: str) -> bool:
    """Tell whether the library has a function."""
    return hasattr(_library, function)


def new_handle() -> Any:
    """Return room for a device's handle."""
    return c_void_p()


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
    figures = create_string_buffer(_MEMORY_V2.pack(_VERSION_2, 0, 0, 0, 0), _MEMORY_V2.size)
    code = call("nvmlDeviceGetMemoryInfo_v2", of, figures)
    if code in (MISSING, NOT_SUPPORTED, OTHER_VERSION):
        code = call("nvmlDeviceGetMemoryInfo", of, figures)
        total, free, used = _MEMORY.unpack_from(figures)
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


def limit(of: object, cgroup: str) -> tuple[int, int, int]:
    """Read how many bytes a cgroup's processes may have of a device; return NVML's code, these, and what they have."""
    folder = create_string_buffer(os.fsencode(cgroup))
    limits = create_string_buffer(_LIMITS.pack(addressof(folder), 0, 0, 0), _LIMITS.size)
    code = call("nvmlDeviceGetMemoryLimits_v1", of, limits)
    _, _, hard, used = _LIMITS.unpack(limits)
    return code, hard, used


def sensors(of: object, *, all_of_them: bool) -> dict[str, float | None]:
    """Read the sensors of a device, all of them or those that are read often; None where one does not tell."""
    return {name: _sensor(of, one) for name, one in SENSORS.items() if all_of_them or one.often}


def _sensor(of: object, sensor: Sensor) -> float | None:
    found = (c_uint * 2)()  # the first is the GPU's own in nvmlUtilization_t, too
    code = call(sensor.function, of, *map(c_uint, sensor.arguments), byref(found))
    return found[0] / sensor.per if code == OK and found[0] <= sensor.most else None


def multiprocessors(of: object, capability: tuple[int, int] | None) -> int | None:
    """Count a device's multiprocessors: NVML has a GPU's cores, and an instance's multiprocessors."""
    part = (c_uint * 10)()  # nvmlDeviceAttributes_t begins with how many there are
    if call("nvmlDeviceGetAttributes_v2", of, byref(part)) == OK and part[0]:
        return int(part[0])
    cores = number("nvmlDeviceGetNumGpuCores", of)
    if not cores or capability is None or not (6, 0) <= capability < (13, 0):
        return None
    return cores // _CORES_PER_MULTIPROCESSOR.get(capability, 128)


def starting(code: int) -> str:
    """Say why NVML did not start or counts no GPUs, and what to do."""
    why = "" if code in (NO_LIBRARY, NO_GPU, 18) else _out_of_reach()
    if why := why or _START.get(code, ""):
        return why
    return say("NVML does not start: {why}. See whether nvidia-smi says more.", why=_words(code))


def _out_of_reach() -> str:
    """Say why this process cannot open the driver's device file, as some containers' cannot; nothing where it can."""
    machine = os.environ.get(SIMULATED)
    file, module = (DEVICE, MODULE) if machine is None else (machine, f"{machine}.nvidia-version")
    try:
        os.close(os.open(file, os.O_RDWR | os.O_NONBLOCK))
    except OSError as error:
        if error.errno == errno.EPERM:  # by the rules of a cgroup
            return say(
                "The kernel denies this process {file} ({why}), as in a container that has lost its devices when "
                "`systemctl daemon-reload` ran on the host. Programs that use its GPUs already go on. Restart the "
                "container.",
                file=file,
                why=error.strerror,
            )
        if error.errno == errno.ENOENT and os.path.exists(module):  # noqa: PTH110  speed of a look
            return say(
                "The NVIDIA driver is loaded, and this process has no {file}. In a container, start it with its GPUs "
                "(docker run --gpus all ...); elsewhere, `sudo nvidia-smi` makes the file.",
                file=file,
            )
    return ""


def _words(code: int) -> str:
    """Return NVML's own words for a code."""
    words = getattr(_library, "nvmlErrorString", None)
    if words is None:
        return say("error {code}", code=code)
    words.restype = c_char_p
    return say("{words} (error {code})", words=(words(code) or b"").decode(errors="replace"), code=code)


def reading(code: int) -> str:
    """Say why a figure of one GPU is missing, in half a sentence."""
    return _GPU.get(code) or say("the driver answers: {why}", why=_words(code))


def listing(code: int) -> str:
    """Say why a GPU's list of processes is missing, in half a sentence."""
    return say("no list of processes: {why}", why=reading(code))


def invalid(labels: list[str]) -> str:
    """Say on which GPUs rows were left out."""
    return say(
        "The driver's list of processes is invalid on GPU {gpus}: "
        "rows that cannot be are left out. Another version of the driver may give them right.",
        gpus=", ".join(labels),
    )
