"""A driver in 100 lines, for what no simulated machine does: old versions, odd structs, shared memory.

It takes the place of the functions that pynvml finds in the library, and counts their calls.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pynvml

from tests.sizes import GIB
from tfgpu_magic.monitor.driver import nvml

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
MPS = "nvmlDeviceGetMPSComputeRunningProcesses"


@dataclass
class Device:
    uuid: str = "GPU-0"
    name: bytes = b"NVIDIA Test"
    total: int = 16 * GIB
    used: int = 0
    reserved: int = 0
    mig: list[Device] = field(default_factory=list)
    instance: int = 0
    lists: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    utilisation: int | None = None
    samples: list[tuple[int, int, int, int, int, int]] | None = None
    celsius: int | None = None
    milliwatts: int | None = None
    anchor: Any = field(default_factory=pynvml.struct_c_nvmlDevice_t)


class Driver:
    """Functions by NVML's names. `missing` are those that the library lacks; `rows` is how it writes a list's rows."""

    def __init__(self, *devices: Device) -> None:
        self.devices = list(devices)
        self.calls: Counter[str] = Counter()
        self.missing: set[str] = {"nvmlDeviceGetAttributes_v2"}
        self.extra: set[str] = set()
        self.rows = dict(nvml.ROWS)
        self.start: Exception | None = None

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Driver:
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", self.find)
        monkeypatch.setattr(pynvml, "nvmlInit", self.init)
        return self

    def init(self) -> None:
        self.calls["nvmlInit"] += 1
        if self.start:
            raise self.start

    def find(self, name: str) -> Callable[..., int]:
        function = getattr(self, name, None)
        for listing in (COMPUTE, GRAPHICS, MPS):
            if name.startswith(listing):
                function = self.list_of(listing, name.removeprefix(listing))
        if name in self.missing or (function is None and name not in self.extra):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

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
                return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
            layout = self.rows[version]
            numbers = len(layout.unpack(bytes(layout.size)))
            data = b"".join(layout.pack(*(tuple(row) + (0,) * numbers)[:numbers]) for row in rows)
            ctypes.memmove(buffer, data, len(data))
            return 0

        return give

    def nvmlShutdown(self) -> None: ...  # noqa: N802

    def nvmlSystemGetDriverVersion(self, text: Any, _: Any) -> None:  # noqa: N802
        text.value = b"550.1"

    def nvmlDeviceGetCount_v2(self, count: Any) -> None:  # noqa: N802
        count._obj.value = len(self.devices)

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802
        device: Device = self.devices[index.value]
        handle._obj.contents = device.anchor
        return device.codes.get("nvmlDeviceGetHandleByIndex_v2", 0)

    def nvmlDeviceGetMigMode(self, handle: Any, mode: Any, _: Any) -> None:  # noqa: N802
        mode._obj.value = bool(self.of(handle).mig)

    def nvmlDeviceGetMaxMigDeviceCount(self, _: Any, count: Any) -> None:  # noqa: N802
        count._obj.value = 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, part: Any) -> int:  # noqa: N802
        instances = self.of(handle).mig
        if index.value >= len(instances):
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        part._obj.contents = instances[index.value].anchor
        return 0

    def nvmlDeviceGetGpuInstanceId(self, handle: Any, number: Any) -> None:  # noqa: N802
        number._obj.value = self.of(handle).instance

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, _: Any) -> None:  # noqa: N802
        text.value = self.of(handle).uuid.encode()

    def nvmlDeviceGetName(self, handle: Any, text: Any, _: Any) -> None:  # noqa: N802
        text.value = self.of(handle).name

    def nvmlDeviceGetCudaComputeCapability(self, _: Any, major: Any, minor: Any) -> None:  # noqa: N802
        major._obj.value, minor._obj.value = 8, 0

    def nvmlDeviceGetNumGpuCores(self, _: Any, cores: Any) -> None:  # noqa: N802
        cores._obj.value = 108 * 64

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:  # noqa: N802
        return self._figure(self.of(handle).utilisation, rates._obj, "gpu")

    def nvmlDeviceGetTemperature(self, handle: Any, _: Any, celsius: Any) -> int:  # noqa: N802
        return self._figure(self.of(handle).celsius, celsius._obj)

    def nvmlDeviceGetPowerUsage(self, handle: Any, milliwatts: Any) -> int:  # noqa: N802
        return self._figure(self.of(handle).milliwatts, milliwatts._obj)

    def _figure(self, value: int | None, to: Any, name: str = "value") -> int:
        if value is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        setattr(to, name, value)
        return 0

    def nvmlDeviceGetProcessUtilization(self, handle: Any, buffer: Any, count: Any, since: Any) -> int:  # noqa: N802
        samples = self.of(handle).samples
        if samples is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        news = [sample for sample in samples if sample[1] > since.value]
        room, count._obj.value = count._obj.value, len(news)
        if not news:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        if len(news) > room:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        data = b"".join(nvml.SAMPLE.pack(*sample) for sample in news)
        ctypes.memmove(buffer, data, len(data))
        return 0

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> None:  # noqa: N802
        memory._obj.reserved = self.of(handle).reserved
        self._memory(self.of(handle), memory._obj, 0)

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> None:  # noqa: N802
        self._memory(self.of(handle), memory._obj, self.of(handle).reserved)

    def _memory(self, device: Device, memory: Any, reserved_in_used: int) -> None:
        memory.total, memory.used = device.total, device.used + reserved_in_used
        memory.free = device.total - device.used - device.reserved
