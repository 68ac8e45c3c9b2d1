"""A driver in 100 lines, for what no simulated machine does: old versions, odd structs, shared memory.

It takes the place of the driver's library, and counts the calls of its functions.
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pynvml

from tests.sizes import GIB
from tfgpu_magic.machine.driver import limits as nvml_limits
from tfgpu_magic.machine.driver import nvml, nvml_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
MPS = "nvmlDeviceGetMPSComputeRunningProcesses"
LIMITS, NEWER = "nvmlDeviceGetMemoryLimits_v1", "nvmlDeviceGetTemperatureV"


def give_handle(device: Device, to: Any) -> None:
    to._obj.contents = pynvml.struct_c_nvmlDevice_t.from_buffer(device.anchor)


@dataclass
class Device:
    uuid: str = "GPU-0"
    name: bytes = b"NVIDIA Test"
    total: int = 16 * GIB
    used: int = 0
    reserved: int = 0
    hard: int = nvml_limits.UNLIMITED
    mig: list[Device] = field(default_factory=list)
    instance: int = 0
    lists: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    utilisation: int | None = None
    samples: list[tuple[int, int, int, int, int, int]] | None = None
    celsius: int | None = None
    milliwatts: int | None = None
    anchor: Any = field(default_factory=ctypes.c_int)


FIGURES: dict[str, Callable[[Device], Any]] = {
    "nvmlDeviceGetGpuInstanceId": lambda device: device.instance,
    "nvmlDeviceGetMaxMigDeviceCount": lambda _: 7,
    "nvmlDeviceGetMigMode": lambda device: bool(device.mig),
    "nvmlDeviceGetName": lambda device: device.name,
    "nvmlDeviceGetNumGpuCores": lambda _: 108 * 64,
    "nvmlDeviceGetPowerUsage": lambda device: device.milliwatts,
    "nvmlDeviceGetTemperature": lambda device: device.celsius,
    "nvmlDeviceGetUUID": lambda device: device.uuid.encode(),
}
"""The functions that tell one figure of a device."""


class Driver:
    """Functions by NVML's names. `missing` are those that the library lacks; `rows` is how it writes a list's rows."""

    def __init__(self, *devices: Device) -> None:
        self.devices = list(devices)
        self.calls: Counter[str] = Counter()
        self.missing: set[str] = {"nvmlDeviceGetAttributes_v2", LIMITS, NEWER}
        self.extra: set[str] = set()
        self.rows = dict(nvml.ROWS)
        self.start = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Driver:
        library = type("Library", (), {"__getattr__": lambda _, name: self.find(name)})()  # functions are attributes
        monkeypatch.setattr(pynvml, "nvmlLib", library)
        forgetful = type("Cache", (dict,), {"__contains__": lambda *_: False})()  # the library may change in a test
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", forgetful)
        return self

    def find(self, name: str) -> Callable[..., int]:
        function = partial(self.figure, name) if name in FIGURES else getattr(self, name, None)
        for listing in (COMPUTE, GRAPHICS, MPS):
            if name.startswith(listing):
                function = self.list_of(listing, name.removeprefix(listing))
        if name in self.missing or (function is None and name not in self.extra):
            raise AttributeError(name)

        def counted(*arguments: Any) -> int:
            self.calls[name] += 1
            device = arguments[0] if arguments and isinstance(arguments[0], pynvml.c_nvmlDevice_t) else None
            code = self.of(device).codes.get(name, 0) if device else 0
            return code or int(function(*arguments) or 0)  # type: ignore[misc]

        return counted

    def of(self, handle: Any) -> Device:
        every = [part for device in self.devices for part in (device, *device.mig)]
        return next(d for d in every if ctypes.addressof(d.anchor) == ctypes.addressof(handle.contents))

    def list_of(self, listing: str, version: str) -> Callable[..., int]:
        def give(handle: Any, count: Any, buffer: Any) -> int:
            rows = self.of(handle).lists.get(listing, [])
            room, count._obj.value = count._obj.value, len(rows)
            if len(rows) > room:
                return nvml_errors.TOO_SMALL
            layout = self.rows[version]
            numbers = len(layout.unpack(bytes(layout.size)))
            data = b"".join(layout.pack(*(tuple(row) + (0,) * numbers)[:numbers]) for row in rows)
            ctypes.memmove(buffer, data, len(data))
            return 0

        return give

    def figure(self, name: str, handle: Any, *arguments: Any) -> int:
        value = FIGURES[name](self.of(handle))
        if value is None:
            return nvml_errors.NOT_SUPPORTED
        to = arguments[1 if name == "nvmlDeviceGetTemperature" else 0]
        to = getattr(to, "_obj", to)
        if isinstance(to, ctypes.Array) and not isinstance(value, bytes):
            to[0] = value
        else:
            to.value = value
        return 0

    def nvmlInitWithFlags(self, _: Any) -> int:  # noqa: N802
        return self.start

    def nvmlDeviceGetTemperatureV(self, handle: Any, to: Any) -> None:  # noqa: N802  of drivers from CUDA 12.8 on
        to._obj.temperature = self.of(handle).celsius

    def nvmlShutdown(self) -> None: ...  # noqa: N802

    def nvmlSystemGetDriverVersion(self, text: Any, _: Any) -> None:  # noqa: N802
        text.value = b"550.1"

    def nvmlDeviceGetCount_v2(self, count: Any) -> None:  # noqa: N802
        count._obj.value = len(self.devices)

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802
        device: Device = self.devices[index.value]
        give_handle(device, handle)
        return device.codes.get("nvmlDeviceGetHandleByIndex_v2", 0)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, part: Any) -> int:  # noqa: N802
        instances = self.of(handle).mig
        if index.value >= len(instances):
            return nvml_errors.NOT_FOUND
        give_handle(instances[index.value], part)
        return 0

    def nvmlDeviceGetMemoryLimits_v1(self, handle: Any, limits: Any) -> None:  # noqa: N802
        top = limits._obj.nameSpace == "/sys/fs/cgroup"
        limits._obj.hardLimit, limits._obj.currentUsed = nvml_limits.UNLIMITED if top else self.of(handle).hard, GIB

    def nvmlDeviceGetCudaComputeCapability(self, _: Any, major: Any, minor: Any) -> None:  # noqa: N802
        major._obj.value, minor._obj.value = 8, 0

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:  # noqa: N802
        utilisation = self.of(handle).utilisation
        rates._obj.gpu = utilisation or 0
        return nvml_errors.NOT_SUPPORTED if utilisation is None else 0

    def nvmlDeviceGetProcessUtilization(self, handle: Any, buffer: Any, count: Any, since: Any) -> int:  # noqa: N802
        samples = self.of(handle).samples
        if samples is None:
            return nvml_errors.NOT_SUPPORTED
        news = [sample for sample in samples if sample[1] > since.value]
        room, count._obj.value = count._obj.value, len(news)
        if not news:
            return nvml_errors.NOT_FOUND
        if len(news) > room:
            return nvml_errors.TOO_SMALL
        data = b"".join(nvml.SAMPLE.pack(*sample) for sample in news)
        ctypes.memmove(buffer, data, len(data))
        return 0

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> None:  # noqa: N802
        of = self.of(handle)
        free = of.total - of.used - of.reserved
        struct.pack_into("IQQQQ", memory._obj, 0, 0, of.total, of.reserved, free, of.used)

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> None:  # noqa: N802
        of = self.of(handle)
        struct.pack_into("QQQ", memory._obj, 0, of.total, of.total - of.used - of.reserved, of.used + of.reserved)
