"""Reads a snapshot from NVML, whose functions `nvml_calls` calls. Whose a pid is, `attribution` finds out."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from ctypes import byref, c_int, c_uint, c_ulonglong, create_string_buffer
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.model.said import say
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.driver import limits, nvml_calls
from tfgpu_magic.monitor.driver.nvml_calls import (
    call,
    has,
    limit,
    memory,
    multiprocessors,
    new_handle,
    number,
    preload,
    sensors,
    start,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

ROWS = {"_v3": struct.Struct("IQII"), "_v2": struct.Struct("IQII"), "": struct.Struct("IQ")}
"""One row of a list as (pid, bytes, ...), by the version of the call, the newest first (nvml.h)."""

ROW_OF_535 = struct.Struct("IQIIQ")
"""Drivers from 535.43 to before 535.86 write one more field in v3."""

SAMPLE = struct.Struct("IQIIII")
"""A sample of utilisation (nvmlProcessUtilizationSample_t): pid, microseconds since the epoch, and the percentages of
multiprocessors, memory, encoder and decoder."""

_KINDS = {"C": "C", "G": "G", "CG": "C+G", "M": "M+C", "CM": "M+C", "GM": "M+C", "CGM": "M+C"}

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
    code: int = nvml_calls.OK
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
            call("nvmlShutdown")
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
        code = self._start() or self._recount()
        if code != nvml_calls.OK:
            self.close()
            error, absent = nvml_calls.starting(code), code in nvml_calls.ABSENT
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
        notes = [] if not invalid else [nvml_calls.invalid(invalid)]
        if any(gpu.reserved is None and gpu.used is not None and not gpu.unified for gpu in gpus):
            notes.append(say("This driver counts the memory that it reserves for itself as used."))
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
            return nvml_calls.OK
        code = start()
        if code == nvml_calls.NO_LIBRARY and preload(self._folders):
            code = start()
        if code != nvml_calls.OK:
            return code
        self._open = True
        self._driver = text("nvmlSystemGetDriverVersion")
        # The extra field came with the first of these symbols and went when the second one came.
        self._row_of_535 = has("nvmlDeviceGetConfComputeMemSizeInfo") and not has(
            "nvmlDeviceGetRunningProcessDetailList"
        )
        return nvml_calls.OK

    def _recount(self) -> int:
        """List the devices again, unless that was done lately, and return NVML's code."""
        if time.monotonic() < self._recount_at:
            return nvml_calls.OK
        count = c_uint()
        code = call("nvmlDeviceGetCount_v2", byref(count))
        if code != nvml_calls.OK or not count.value:
            return code or nvml_calls.NO_GPU
        before = {device.gpu.label: device.gpu for device in self._devices}
        self._cgroups = limits.cgroups() if has("nvmlDeviceGetMemoryLimits_v1") else []
        self._devices = [device for index in range(count.value) for device in self._find(index, before)]
        self._recount_at = time.monotonic() + RECOUNT_EVERY
        return nvml_calls.OK

    def _find(self, index: int, before: dict[str, Gpu]) -> list[_NvmlDevice]:
        """Find the GPU of one index and its MIG instances; `before` has the GPUs by label, for one that is lost now."""
        gpu = before.get(str(index), Gpu(index=index))
        handle = new_handle()
        code = call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
        if code != nvml_calls.OK:
            return [_NvmlDevice(None, gpu, code)]
        mode, pending = c_uint(), c_uint()
        mig = call("nvmlDeviceGetMigMode", handle, byref(mode), byref(pending)) == nvml_calls.OK and mode.value == 1
        exclusive = bool(number("nvmlDeviceGetComputeMode", handle))  # any mode but the default, whose number is 0
        gpu = self._learn(handle, gpu)._replace(index=index, mig=mig, exclusive=exclusive)
        limited = tuple(one for one in self._cgroups if self._limits(handle, [one]))
        return [_NvmlDevice(handle, gpu, limited=limited), *(self._instances(handle, gpu) if mig else [])]

    def _instances(self, handle: Any, parent: Gpu) -> list[_NvmlDevice]:
        """Find the MIG instances of a GPU, numbered as nvidia-smi's process table does, by GPU instance."""
        parts = [new_handle() for _ in range(number("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)]
        give = "nvmlDeviceGetMigDeviceHandleByIndex"
        parts = [part for at, part in enumerate(parts) if call(give, handle, c_uint(at), byref(part)) == nvml_calls.OK]
        numbers = [number("nvmlDeviceGetGpuInstanceId", part) for part in parts]
        if None in numbers or len(set(numbers)) < len(numbers):  # one GPU instance may have several compute instances
            numbers = list(range(len(parts)))
        before = parent._replace(uuid=None, multiprocessors=None)
        facts = [self._learn(part, before) for part in parts]
        return [
            _NvmlDevice(part, gpu._replace(index=parent.index, instance=number, mig=False))
            for part, gpu, number in zip(parts, facts, numbers, strict=True)
        ]

    def _limits(self, handle: Any, cgroups: Iterable[str]) -> list[tuple[int, int]]:
        """Read the limits of cgroups on a device, each with what is used of it; an older driver has none."""
        found = [limit(handle, one) for one in cgroups]
        return [(hard, used) for code, hard, used in found if code == nvml_calls.OK and hard != limits.UNLIMITED]

    def _learn(self, handle: Any, before: Gpu) -> Gpu:
        """Read the constant facts of a device, once per UUID; unknown ones are as in `before`."""
        uuid = text("nvmlDeviceGetUUID", handle)
        if uuid is None:
            return before
        if uuid not in self._facts:
            major, minor = c_int(), c_int()
            code = call("nvmlDeviceGetCudaComputeCapability", handle, byref(major), byref(minor))
            capability = (major.value, minor.value) if code == nvml_calls.OK else before.capability
            self._facts[uuid] = Gpu(
                index=before.index,
                uuid=uuid,
                name=text("nvmlDeviceGetName", handle) or before.name,
                capability=capability,
                multiprocessors=multiprocessors(handle, capability),
            )
        return self._facts[uuid]

    def _read_device(self, device: _NvmlDevice, kinds: str) -> tuple[Gpu, list[Process], bool]:
        """Read one device: its figures, its processes of these kinds, and whether any row was invalid."""
        handle, gpu = device.handle, device.gpu
        if handle is None:
            lost = device.code in nvml_calls.LOST
            return gpu._replace(listed=False, lost=lost, error=nvml_calls.reading(device.code)), [], False
        code, figures, lists = self._memory_and_lists(handle, "" if gpu.mig else kinds)
        if code in nvml_calls.LOST:
            return gpu._replace(listed=False, lost=True, error=nvml_calls.reading(code)), [], False
        figures["sensors"] = sensors(handle, all_of_them="G" in kinds)
        if gpu.mig:  # its instances have the processes, and only administrators may read the whole GPU
            error = None if code in (nvml_calls.OK, nvml_calls.NO_PERMISSION) else nvml_calls.reading(code)
            return gpu._replace(**figures, listed=False, error=error), [], False
        # No figures, or zeros: the GPU shares the machine's memory (Jetson, GB10), if the lists work all the same.
        bare = code == nvml_calls.NOT_SUPPORTED or (code == nvml_calls.OK and not figures["total"])
        total = _machine_memory() if bare else figures.get("total")
        limited = self._limits(handle, device.limited)
        figures |= limits.left(limited, figures.get("free"), total)
        listing = lists["C"][0] if lists else nvml_calls.OK
        held_by, dropped = merge(
            gpu.label,
            ((kind, rows) for kind, (_, rows) in lists.items()),
            total=None if limited else total,  # who is in another cgroup may hold more than is shown here
            utilisation=self._utilisation(device) if any(rows for _, rows in lists.values()) else None,
        )
        if bare and listing == nvml_calls.OK:
            used = _sum(held_by) if lists else None
            figures |= {"total": total, "used": used, "free": _available(), "unified": True}
            code = nvml_calls.OK
        error = None
        if code != nvml_calls.OK:
            error = nvml_calls.reading(code)
        elif listing != nvml_calls.OK:
            error = nvml_calls.listing(listing)
        listed, refused = bool(lists) and listing == nvml_calls.OK, code == nvml_calls.OK != listing
        figures |= {"listed": listed, "used_then": figures.get("used") if listed else None}
        return gpu._replace(**figures, refused=refused, error=error), held_by, dropped

    def _memory_and_lists(
        self, handle: Any, kinds: str
    ) -> tuple[int, dict[str, Any], dict[str, tuple[int, list[tuple[int, int]]]]]:
        """Read the memory and these lists; again where it has moved meanwhile, and would seem to be somebody else's."""
        for _ in range(_TRIES):
            code, figures = memory(handle)
            lists = {} if code in nvml_calls.LOST else {kind: self._list(_LISTS[kind], handle) for kind in kinds}
            if not lists or memory(handle) == (code, figures):
                break
        return code, figures, lists

    def _list(self, function: str, handle: Any) -> tuple[int, list[tuple[int, int]]]:
        """Read one list in one call, of the driver's newest version; return its code, and rows of (pid, bytes)."""
        code = nvml_calls.MISSING
        for version, row in ROWS.items():
            layout = ROW_OF_535 if version == "_v3" and self._row_of_535 else row
            for _ in range(4):
                count = c_uint(self._room)
                code = call(function + version, handle, byref(count), self._buffer)
                if code != nvml_calls.TOO_SMALL:
                    break
                self._make_room(2 * max(self._room, min(count.value, 2**16)))
            if code == nvml_calls.OK and count.value:
                return code, rows(self._buffer.raw, min(count.value, self._room), layout)
            if code != nvml_calls.MISSING:
                return code, []
        return code, []

    def _utilisation(self, device: _NvmlDevice) -> dict[int, int] | None:
        """Read the percentages of the processes that ran kernels since the last call; None where NVML does not tell."""
        label, now = device.gpu.label, int(1e6 * time.time())
        if self._sampled.get(label, 0) > now:  # the clock was set back, and samples bear its time
            del self._sampled[label]
        for _ in range(4):
            count = c_uint(len(self._buffer) // SAMPLE.size)
            since = c_ulonglong(self._sampled.get(label, 0))
            code = call("nvmlDeviceGetProcessUtilization", device.handle, self._buffer, byref(count), since)
            if code != nvml_calls.TOO_SMALL:
                break
            self._make_room(2 * max(self._room, min(count.value, 2**16)))
        if code not in (nvml_calls.OK, nvml_calls.NOT_FOUND):
            return None
        if code == nvml_calls.NOT_FOUND and label in self._sampled:
            return {}
        found = latest(self._buffer.raw, count.value) if code == nvml_calls.OK else {}
        # The first call gets what the driver has kept too. Should it count from its own start, all of that is news.
        old = range(_EPOCH, now - _RECENT) if label not in self._sampled else range(0)
        self._sampled[label] = min(max((at for at, _ in found.values()), default=since.value), now)
        return {pid: percent for pid, (at, percent) in found.items() if at not in old}

    def _make_room(self, count: int) -> None:
        # Room for the longest rows whatever the version, so that no driver writes beyond the buffer.
        self._room = count
        self._buffer = create_string_buffer(count * ROW_OF_535.size)


def _sum(processes: list[Process]) -> int | None:
    """Add up what processes are known to hold; return None when there are some and nothing is known."""
    held = [process.held for process in processes if process.held is not None]
    return sum(held) if held or not processes else None


def _available() -> int | None:
    """Return how many bytes Linux could give: other programs use the machine's memory too."""
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
        return next((1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:")), None)
    return None


def _machine_memory() -> int:
    """Return how many bytes this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Print one snapshot as one line of JSON, and exit at once: the operating system cleans everything up."""
    print(NvmlReader().read().to_json(), flush=True)
    os._exit(0)


def rows(buffer: bytes, count: int, layout: struct.Struct) -> list[tuple[int, int]]:
    """Read the first `count` rows of a list as (pid, bytes)."""
    return [(fields[0], fields[1]) for fields in layout.iter_unpack(buffer[: layout.size * count])]


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
            held = None if size in (0, nvml_calls.NOT_AVAILABLE) else size
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


def latest(buffer: bytes, count: int) -> dict[int, tuple[int, int]]:
    """Read the first `count` samples of utilisation as the newest one's (time, percentage) by pid.

    A process that used nothing but the memory or the codecs has 1 percent, so that it counts as one that uses the GPU.
    Drivers have been seen to give samples of more than 100 percent, or of no process, which are left out.
    """
    found: dict[int, tuple[int, int]] = {}
    for pid, at, *parts in SAMPLE.iter_unpack(buffer[: SAMPLE.size * count]):
        if pid and max(parts) <= 100 and at >= found.get(pid, (0, 0))[0]:
            found[pid] = at, parts[0] or int(any(parts))
    return found
