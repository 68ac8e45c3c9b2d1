"""Reads a snapshot from NVML by nvidia-ml-py, whose module is `pynvml`. Whose a pid is, `attribution` finds out.

A function that fails, or that the driver or nvidia-ml-py lacks, costs its own figure and nothing else. Only lists of
processes are read by calls of our own: nvidia-ml-py makes two for each list, and these calls take longest.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import time
from ctypes import CDLL, byref, c_uint, c_ulonglong, create_string_buffer
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.machine.driver import limits, nvml_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

pynvml: Any = None
"""nvidia-ml-py, once a driver was to be opened."""

_NEEDED = ("nvmlMemory_v2", "_nvmlGetFunctionPointer")
"""What older versions lack, or those of another package."""


class Sensor(NamedTuple):
    """How a sensor of a GPU is read.

    Attributes:
        function: NVML's.
        arguments: what it takes beside the device.
        per: by how much what it gives is divided.
        most: beyond this it gives nonsense.
        often: whether it is read each time, and not with the graphics processes alone.
        newer: NVML's function where a driver has no `function` any more; it takes the same.
    """

    function: str
    arguments: tuple[int, ...] = ()
    per: int = 1
    most: float = float("inf")
    often: bool = False
    newer: str = ""


SENSORS = {
    "utilisation": Sensor("nvmlDeviceGetUtilizationRates", most=100, often=True),
    "temperature": Sensor("nvmlDeviceGetTemperature", (0,), newer="nvmlDeviceGetTemperatureV"),  # NVML_TEMPERATURE_GPU
    "power": Sensor("nvmlDeviceGetPowerUsage", per=1000),  # to ask for it takes long
}
"""The sensors that are read, in percent, degrees Celsius and watts, by the names that every view has for them."""

ROWS = {"_v3": struct.Struct("IQII"), "_v2": struct.Struct("IQII"), "": struct.Struct("IQ")}
"""One row of a list as (pid, bytes, ...), by the version of the call, the newest first (nvml.h)."""

ROW_OF_535 = struct.Struct("IQIIQ")
"""Drivers from 535.43 to before 535.86 write one more field in v3."""

SAMPLE = struct.Struct("IQIIII")
"""A sample of utilisation (nvmlProcessUtilizationSample_t): pid, microseconds since the epoch, and the percentages of
multiprocessors, memory, encoder and decoder."""

_KINDS = {"C": "C", "G": "G", "CG": "C+G", "M": "M+C", "CM": "M+C", "GM": "M+C", "CGM": "M+C"}

_CORES_PER_MULTIPROCESSOR = {(6, 0): 64, (8, 0): 64} | {(7, minor): 64 for minor in range(10)}
"""The exceptions to 128, by compute capability (CUDA C++ Programming Guide, throughput of arithmetic instructions)."""

NOT_AVAILABLE = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE: a figure on Windows, WSL and some virtual GPUs."""

LARGEST_PID = 2**22
"""The largest pid that Linux allows. A container's own limit is not the host's, whose pids a list may have."""
RECOUNT_EVERY = 30.0
"""Seconds between two counts of the devices: GPUs are plugged, lost and cut into instances meanwhile."""

_TRIES = 3  # to read memory and lists that agree

_EPOCH, _RECENT = 10**15, 5 * 10**6
"""Microseconds: a time that no driver has counted up to from its own start, and how old a first sample may be."""

_LISTS = {
    "C": "nvmlDeviceGetComputeRunningProcesses",
    "G": "nvmlDeviceGetGraphicsRunningProcesses",
    "M": "nvmlDeviceGetMPSComputeRunningProcesses",
}


class _NvmlDevice(NamedTuple):
    """A GPU or MIG instance: NVML's handle (None where it gave none, with the reason in `code`), and constant facts.

    In `limited` are the cgroups above this process, and its own, that the driver limits there.
    """

    handle: Any
    gpu: Gpu
    code: int = nvml_errors.OK
    limited: tuple[str, ...] = ()


class NvmlReader:
    """An open NVML, for one reading or a reading every second.

    Facts that do not change are read once per UUID. Each `read` then costs, per GPU, a call for the memory and one for
    its use; with processes one for each list, one for their samples and another for the memory; and with graphics two
    for the sensors. Not thread-safe.

    Args:
        folders: where else to look for the driver's library, if the system does not find it.
    """

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self._folders = tuple(folders)
        self._driver: str | None = None
        self._open = False
        self._devices: list[_NvmlDevice] = []
        self._cgroups: list[str] = []
        self._facts: dict[str, Gpu] = {}
        self._recount_at = 0.0
        self._row_of_535 = False
        self._sampled: dict[str, int] = {}  # the time of each GPU's last sample of utilisation, in microseconds
        self._make_room(64)

    def close(self) -> None:
        """Shut NVML down; a later `read` starts it again."""
        if self._open:
            query("nvmlShutdown")
        self._open = False
        self._recount_at = 0.0

    def read(self, *, processes: bool = True, graphics: bool = True) -> Snapshot:
        """Read all GPUs now. Whatever the driver does, short of hanging, the result is a snapshot.

        Args:
            processes: whether to read lists of processes, the expensive part: they take the driver's global lock.
            graphics: whether these include graphics processes, the most expensive list.

        Returns:
            The snapshot. Its `error` says why there is none; each `Gpu.error` is about one GPU.
        """
        if unusable := _import():
            return Snapshot(time=time.time(), error=unusable, unasked=True)
        code = self._start() or self._list_devices()
        if code != nvml_errors.OK:
            self.close()
            error, absent = nvml_errors.start_error(code, query("nvmlErrorString", code)), code in nvml_errors.ABSENT
            return Snapshot(time=time.time(), driver=self._driver, error=error, absent=absent)
        gpus: list[Gpu] = []
        rows: list[Process] = []
        invalid: list[str] = []
        for device in self._devices:
            kinds: str = ("CGM" if graphics else "CM") if processes else ""
            gpu, held, dropped = self._read_device(device, kinds)
            gpus.append(gpu)
            rows.extend(held)
            invalid.extend([gpu.label] if dropped else [])
        if any(gpu.error for gpu in gpus):
            self._recount_at = 0.0  # a handle may be stale, and a lost GPU may come back
        notes = [] if not invalid else [nvml_errors.invalid_rows(invalid)]
        if any(gpu.reserved is None and gpu.used is not None and not gpu.unified for gpu in gpus):
            notes.append("This driver counts the memory that it reserves for itself as used.")
        now = time.time()
        return Snapshot(
            time=now,
            driver=self._driver,
            gpus=tuple(gpus),
            processes=tuple(rows),
            notes=tuple(notes),
            listed_at=now if processes else None,
        )

    def _start(self) -> int:
        """Initialise NVML unless that is done, and return its code."""
        if self._open:
            return nvml_errors.OK
        code, _ = call("nvmlInit")
        if code == nvml_errors.NO_LIBRARY and preload(self._folders):
            code, _ = call("nvmlInit")
        if code != nvml_errors.OK:
            return code
        self._open = True
        self._driver = query("nvmlSystemGetDriverVersion") or None
        # The extra field came with the first of these symbols and went when the second one came.
        self._row_of_535 = has_function("nvmlDeviceGetConfComputeMemSizeInfo") and not has_function(
            "nvmlDeviceGetRunningProcessDetailList"
        )
        return nvml_errors.OK

    def _list_devices(self) -> int:
        """List the devices again, unless that was done lately, and return NVML's code."""
        if time.monotonic() < self._recount_at:
            return nvml_errors.OK
        code, count = call("nvmlDeviceGetCount")
        if not count:
            return code or nvml_errors.NO_GPU
        before = {device.gpu.label: device.gpu for device in self._devices}
        known = hasattr(pynvml, "nvmlDeviceGetMemoryLimits_v1") and has_function("nvmlDeviceGetMemoryLimits_v1")
        self._cgroups = limits.cgroups() if known else []
        self._devices = [device for index in range(count) for device in self._find_devices(index, before)]
        self._recount_at = time.monotonic() + RECOUNT_EVERY
        return nvml_errors.OK

    def _find_devices(self, index: int, before: dict[str, Gpu]) -> list[_NvmlDevice]:
        """Find the GPU of one index and its MIG instances; `before` has the GPUs by label, for one that is lost now."""
        gpu = before.get(str(index), Gpu(index=index))
        code, handle = call("nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            return [_NvmlDevice(None, gpu, code)]
        mig = (query("nvmlDeviceGetMigMode", handle) or [0])[0] == 1
        exclusive = bool(query("nvmlDeviceGetComputeMode", handle))  # any mode but the default, whose number is 0
        gpu = self._read_constants(handle, gpu)._replace(index=index, mig=mig, exclusive=exclusive)
        limited = tuple(one for one in self._cgroups if self._limits(handle, [one]))
        return [_NvmlDevice(handle, gpu, limited=limited), *(self._instances(handle, gpu) if mig else [])]

    def _instances(self, handle: Any, parent: Gpu) -> list[_NvmlDevice]:
        """Find the MIG instances of a GPU, numbered as nvidia-smi's process table does, by GPU instance."""
        places = range(query("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)
        found = [query("nvmlDeviceGetMigDeviceHandleByIndex", handle, place) for place in places]
        parts = [part for part in found if part is not None]
        numbers = [query("nvmlDeviceGetGpuInstanceId", part) for part in parts]
        if None in numbers or len(set(numbers)) < len(numbers):  # one GPU instance may have several compute instances
            numbers = list(range(len(parts)))
        before = parent._replace(uuid=None, multiprocessors=None)
        facts = [self._read_constants(part, before) for part in parts]
        return [
            _NvmlDevice(part, gpu._replace(index=parent.index, instance=number, mig=False))
            for part, gpu, number in zip(parts, facts, numbers, strict=True)
        ]

    def _limits(self, handle: Any, cgroups: Iterable[str]) -> list[tuple[int, int]]:
        """Read the limits of cgroups on a device, each with what is used of it; an older driver has none."""
        found = [read_limit(handle, one) for one in cgroups]
        return [one for one in found if one is not None and one[0] != limits.UNLIMITED]

    def _read_constants(self, handle: Any, before: Gpu) -> Gpu:
        """Read the constant facts of a device, once per UUID; unknown ones are as in `before`."""
        uuid = query("nvmlDeviceGetUUID", handle)
        if not uuid:
            return before
        if uuid not in self._facts:
            capability = query("nvmlDeviceGetCudaComputeCapability", handle) or before.capability
            self._facts[uuid] = Gpu(
                index=before.index,
                uuid=uuid,
                name=query("nvmlDeviceGetName", handle) or before.name,
                capability=capability,
                multiprocessors=count_multiprocessors(handle, capability),
            )
        return self._facts[uuid]

    def _read_device(self, device: _NvmlDevice, kinds: str) -> tuple[Gpu, list[Process], bool]:
        """Read one device: its figures, its processes of these kinds, and whether any row was invalid."""
        handle, gpu = device.handle, device.gpu
        if handle is None:
            lost = device.code in nvml_errors.LOST
            return gpu._replace(listed=False, lost=lost, error=_error_text(device.code)), [], False
        code, figures, lists = self._memory_and_lists(handle, "" if gpu.mig else kinds)
        if code in nvml_errors.LOST:
            return gpu._replace(listed=False, lost=True, error=_error_text(code)), [], False
        figures["sensors"] = read_sensors(handle, all_of_them="G" in kinds)
        if gpu.mig:  # its instances have the processes, and only administrators may read the whole GPU
            error = None if code in (nvml_errors.OK, nvml_errors.NO_PERMISSION) else _error_text(code)
            return gpu._replace(**figures, listed=False, error=error), [], False
        # No figures, or zeros: the GPU shares the machine's memory (Jetson, GB10), if the lists work all the same.
        bare = code == nvml_errors.NOT_SUPPORTED or (code == nvml_errors.OK and not figures["total"])
        total = _total_host_memory() if bare else figures.get("total")
        limited = self._limits(handle, device.limited)
        figures |= limits.remaining(limited, figures.get("free"), total)
        listing = lists["C"][0] if lists else nvml_errors.OK
        held_by, dropped = merge(
            gpu.label,
            ((kind, rows) for kind, (_, rows) in lists.items()),
            total=None if limited else total,  # who is in another cgroup may hold more than is shown here
            utilisation=self._utilisation(device) if any(rows for _, rows in lists.values()) else None,
        )
        if bare and listing == nvml_errors.OK:
            used = _sum(held_by) if lists else None
            figures |= {"total": total, "used": used, "free": _available_host_memory(), "unified": True}
            code = nvml_errors.OK
        error = None
        if code != nvml_errors.OK:
            error = _error_text(code)
        elif listing != nvml_errors.OK:
            error = f"no list of processes: {_error_text(listing)}"
        listed, refused = bool(lists) and listing == nvml_errors.OK, code == nvml_errors.OK != listing
        figures |= {"listed": listed, "used_then": figures.get("used") if listed else None}
        return gpu._replace(**figures, refused=refused, error=error), held_by, dropped

    def _memory_and_lists(
        self, handle: Any, kinds: str
    ) -> tuple[int, dict[str, Any], dict[str, tuple[int, list[tuple[int, int]]]]]:
        """Read the memory and these lists; again where it has moved meanwhile, and would seem to be somebody else's."""
        for _ in range(_TRIES):
            code, memory = read_memory(handle)
            lists = {} if code in nvml_errors.LOST else {kind: self._list(_LISTS[kind], handle) for kind in kinds}
            if not lists or bytes(read_memory(handle)[1] or b"") == bytes(memory or b""):
                break
        sizes = {name: getattr(memory, name, None) for name in ("total", "used", "free", "reserved") if memory}
        figures = {name: None if size == NOT_AVAILABLE else size for name, size in sizes.items()}
        return code, figures, lists

    def _list(self, function: str, handle: Any) -> tuple[int, list[tuple[int, int]]]:
        """Read one list in one call, of the driver's newest version; return its code, and rows of (pid, bytes)."""
        for version, row in ROWS.items():
            layout = ROW_OF_535 if version == "_v3" and self._row_of_535 else row
            code, found = self._fill(function + version, layout, lambda buffer, count: (handle, count, buffer))
            if code != nvml_errors.MISSING:
                break
        return code, [(row[0], row[1]) for row in found]

    def _utilisation(self, device: _NvmlDevice) -> dict[int, int] | None:
        """Read the percentages of the processes that ran kernels since the last call; None where NVML does not tell."""
        label, now = device.gpu.label, int(1e6 * time.time())
        if self._sampled.get(label, 0) > now:  # the clock was set back, and samples bear its time
            del self._sampled[label]
        since = self._sampled.get(label, 0)
        code, samples = self._fill(
            "nvmlDeviceGetProcessUtilization",
            SAMPLE,
            lambda buffer, count: (device.handle, buffer, count, c_ulonglong(since)),
        )
        if code not in (nvml_errors.OK, nvml_errors.NOT_FOUND):
            return None
        if code == nvml_errors.NOT_FOUND and label in self._sampled:
            return {}
        found = latest_samples(samples)
        # The first call gets what the driver has kept too. Should it count from its own start, all of that is news.
        old = range(_EPOCH, now - _RECENT) if label not in self._sampled else range(0)
        self._sampled[label] = min(max((at for at, _ in found.values()), default=since), now)
        return {pid: percent for pid, (at, percent) in found.items() if at not in old}

    def _fill(
        self, function: str, layout: struct.Struct, arguments: Callable[[Any, Any], tuple[Any, ...]]
    ) -> tuple[int, list[tuple[int, ...]]]:
        """Fill the buffer by a function of NVML, in one call unless it is too small; return NVML's code and the rows.

        What `arguments` returns are the function's, with buffer and count in their places.
        """
        code, pointer = call("_nvmlGetFunctionPointer", function)
        count = c_uint()
        for _ in range(4 if pointer else 0):
            count.value = self._room
            code = pointer(*arguments(self._buffer, byref(count)))
            if code != nvml_errors.TOO_SMALL:
                break
            self._make_room(2 * max(self._room, min(count.value, 2**16)))
        filled = layout.size * min(count.value, self._room) if code == nvml_errors.OK else 0
        return code, list(layout.iter_unpack(memoryview(self._buffer)[:filled]))

    def _make_room(self, count: int) -> None:
        # Room for the longest rows whatever the version, so that no driver writes beyond the buffer.
        self._room = count
        self._buffer = create_string_buffer(count * ROW_OF_535.size)


def _import() -> str:
    """Import nvidia-ml-py, if it is not; return why what is here instead cannot be used, else nothing."""
    global pynvml
    if pynvml is not None:
        return ""
    # It imports ctypes.util, for Windows alone, which imports subprocess and tempfile: half of what all of this takes.
    spared = sys.modules.setdefault("ctypes.util", SimpleNamespace(find_library=None))  # type: ignore[arg-type]
    try:
        import pynvml as found  # who only names the reader opens no driver, as the doctor
    except Exception as error:  # one that is too old for this Python raises anything
        return nvml_errors.no_library(str(error))
    finally:
        if isinstance(spared, SimpleNamespace):
            del sys.modules["ctypes.util"]
    if not all(hasattr(found, name) for name in _NEEDED):
        file = getattr(found, "__file__", found)
        return nvml_errors.no_library(f"{file} is of another package, or too old")
    pynvml = found
    return ""


def call(function: str, *arguments: Any) -> tuple[int, Any]:
    """Call a function of nvidia-ml-py; return NVML's code, and what it answers: None if it fails."""
    binding = getattr(pynvml, function, None)
    try:
        return (nvml_errors.MISSING, None) if binding is None else (nvml_errors.OK, binding(*arguments))
    except UnicodeDecodeError as error:  # of a name, which nvidia-ml-py expects in UTF-8
        return nvml_errors.OK, error.object.decode(errors="replace")
    except pynvml.NVMLError as error:
        return error.value, None


def query(function: str, *arguments: Any) -> Any:
    """Return what a function of nvidia-ml-py answers; None if it fails."""
    return call(function, *arguments)[1]


def has_function(function: str) -> bool:
    """Return whether the driver's library has a function."""
    return query("_nvmlGetFunctionPointer", function) is not None


def preload(folders: Iterable[str]) -> bool:
    """Load the driver's library from the first folder that has it; later loads by name then get this one."""
    for folder in folders:
        with contextlib.suppress(OSError):
            CDLL(f"{folder}/{nvml_errors.LIBRARY}")
            return True
    return False


def read_memory(handle: Any) -> tuple[int, Any]:
    """Read the memory of a device; return NVML's code, and sizes in bytes, of an older driver without `reserved`."""
    code, memory = call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    if code in (nvml_errors.MISSING, nvml_errors.NOT_SUPPORTED, nvml_errors.OTHER_VERSION):
        return call("nvmlDeviceGetMemoryInfo", handle)
    return code, memory


def read_limit(handle: Any, cgroup: str) -> tuple[int, int] | None:
    """Return how many bytes a cgroup's processes may have of a device, and how many these have; None if unknown."""
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t(os.fsencode(cgroup))
    code, _ = call("nvmlDeviceGetMemoryLimits_v1", handle, limits)
    return None if code != nvml_errors.OK else (limits.hardLimit, limits.currentUsed)


def read_sensors(handle: Any, *, all_of_them: bool) -> dict[str, float | None]:
    """Read the sensors of a device, all of them or those that are read often; None where one does not tell."""
    return {name: _read_sensor(handle, one) for name, one in SENSORS.items() if all_of_them or one.often}


def _read_sensor(handle: Any, sensor: Sensor) -> float | None:
    code, found = call(sensor.function, handle, *sensor.arguments)
    if code == nvml_errors.MISSING and sensor.newer:
        found = query(sensor.newer, handle, *sensor.arguments)
    figure = getattr(found, "gpu", found)  # a utilisation is of the GPU, and of its memory
    return figure / sensor.per if figure is not None and figure <= sensor.most else None


def count_multiprocessors(handle: Any, capability: tuple[int, int] | None) -> int | None:
    """Count a device's multiprocessors: NVML has a GPU's cores, and an instance's multiprocessors."""
    part = query("nvmlDeviceGetAttributes_v2", handle)
    if part and part.multiprocessorCount:
        return int(part.multiprocessorCount)
    cores = query("nvmlDeviceGetNumGpuCores", handle)
    if not cores or capability is None or not (6, 0) <= capability < (13, 0):
        return None
    return int(cores) // _CORES_PER_MULTIPROCESSOR.get(capability, 128)


def _error_text(code: int) -> str:
    return nvml_errors.read_error(code, query("nvmlErrorString", code))


def _sum(processes: list[Process]) -> int | None:
    """Add up what processes are known to hold; return None when there are some and nothing is known."""
    held = [process.held for process in processes if process.held is not None]
    return sum(held) if held or not processes else None


def _available_host_memory() -> int | None:
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        return next((1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:")), None)
    return None


def _total_host_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def merge(
    gpu: str,
    lists: Iterable[tuple[str, Sequence[tuple[int, int]]]],
    *,
    total: int | None,
    utilisation: Mapping[int, int] | None,
) -> tuple[list[Process], bool]:
    """Make one row for each process from the lists of one GPU.

    A pid in two lists has its whole use in each, so the larger figure counts, never the sum.

    Args:
        gpu: the `Gpu.label`.
        lists: each list's kind (``C``, ``G`` or ``M``, in this order) and its rows of (pid, bytes).
        total: bytes of the GPU's memory, None when unknown.
        utilisation: the percentages of the processes that ran kernels, by pid; None where the driver does not tell.

    Returns:
        A process for each pid, and whether rows that cannot be were dropped.
    """
    merged: dict[int, tuple[str, int | None]] = {}
    dropped = False
    for kind, list_rows in lists:
        for pid, size in list_rows:
            # To be listed is to have a context, which takes memory: 0 is what some containers see for unknown.
            held = None if size in (0, NOT_AVAILABLE) else size
            if not 0 < pid <= LARGEST_PID or (held is not None and total is not None and held > total):
                dropped = True
                continue
            if pid not in merged:
                merged[pid] = kind, held
                continue
            kinds, before = merged[pid]
            merged[pid] = kinds if kind in kinds else kinds + kind, max(held or 0, before or 0) or None
    processes = [
        Process(gpu, pid, _KINDS[kinds], held, None if utilisation is None else utilisation.get(pid, 0))
        for pid, (kinds, held) in merged.items()
    ]
    return processes, dropped


def latest_samples(samples: Iterable[tuple[int, ...]]) -> dict[int, tuple[int, int]]:
    """Return of samples of utilisation the newest one's (time, percentage) by pid.

    A process that used nothing but the memory or the codecs has 1 percent, so that it counts as one that uses the GPU.
    Drivers have been seen to give samples of more than 100 percent, or of no process, which are left out.
    """
    found: dict[int, tuple[int, int]] = {}
    for pid, at, *parts in samples:
        if pid and max(parts) <= 100 and at >= found.get(pid, (0, 0))[0]:
            found[pid] = at, parts[0] or int(any(parts))
    return found
