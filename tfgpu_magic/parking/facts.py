"""Reads what `checks` decides from: the driver's module, the process in ``/proc``, its children, its host's memory.

What the driver itself says comes as a snapshot, from a process that may hang. Where something cannot be read it is
unknown, and what is unknown is refused.
Source: proc(5); the kernel's documentation of memory cgroups; NVIDIA's README of its Linux driver, on
``/proc/driver/nvidia/version``.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tfgpu_magic import host
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.isolate import host_memory
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.model.snapshot import Gpu, Snapshot
from tfgpu_magic.monitor.driver import look
from tfgpu_magic.monitor.owners.pids import began, descendants, elsewhere, opens_driver
from tfgpu_magic.parking import checks, driver_worker, host_memory_claims, reported
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside, ParkFacts
from tfgpu_magic.parking.disk import DiskPlace
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.policy import settings
from tfgpu_magic.units import parse_bytes

T = TypeVar("T")

PROC = Path("/proc")
_GOING = (Phase.LOCKING, Phase.CHECKPOINTING)
_lowest: list[int] = []  # what `users_limit` has returned last, if anything


def read(pid: int, snapshot: Snapshot, inside: Inside, *, to_disk: bool = False) -> ParkFacts:
    """Read all facts of a process that is to be parked, with a snapshot of just now."""
    room, most = host_room(pid), users_limit()

    def on_place(place: DiskPlace) -> tuple[str, int]:
        left = place.left() - parked_by_others(pid, disk=True, going=True)
        return place.directory, max(0, min(left, place.most - parked_by_others(pid, disk=True)))

    rows = [row for row in snapshot.processes if row.pid == pid]
    gpus = {gpu.label: gpu for gpu in snapshot.gpus}
    here = [(given_back(gpus[row.gpu], snapshot), row.held) for row in rows if row.gpu in gpus]
    unlisted = (gpu.error or "no list of processes" for gpu in snapshot.gpus if not gpu.listed and not gpu.mig)
    return ParkFacts(
        error=snapshot.error or next(unlisted, None),
        driver=snapshot.driver,
        open_module=open_module(),
        architecture=platform.machine(),
        gpus=tuple(gpu for gpu, _ in here),
        free=tuple(gpus[row.gpu].free for row in rows if row.gpu in gpus),
        held=tuple(None if size is None or not gpu.uuid else HeldMemory(gpu.uuid, size) for gpu, size in here),
        unlisted=not here and bool(elsewhere(row.pid for row in snapshot.processes)) and opens_driver(pid) is not False,
        mappings=managed_mappings(pid),
        mps=any("M" in row.kind for row in rows),
        children=children_on_driver(pid),
        host=None if room is None else max(0, room - host_memory_claims.of_others(snapshot)),
        most=most,
        others=0 if most is None else parked_by_others(pid),
        disk=on_disk(on_place) if to_disk else None,
        inside=inside,
    )


def parked_by_others(pid: int, *, disk: bool = False, going: bool = False) -> int:
    """Return the bytes that this user's other processes have parked in host memory or on disk, or that go there now."""
    others = (one for other, one in reported.read().items() if other != pid and one.disk == disk)
    return sum(one.size for one in others if (one.phase in _GOING if going else one.parked))


def disk_place() -> DiskPlace | None:
    """Return what of the disks parking may use: as the administrator's file has it, else the configuration."""
    with contextlib.suppress(PolicyError):
        return DiskPlace.read(settings.of_file().values.get("parking_disk") or _configured("parking_disk"))
    return None


def on_disk(do: Callable[[DiskPlace], T]) -> T | why.Refusal:
    """Return what may be had of the place on disk, or why nothing can."""
    place = disk_place()
    if place is None:
        return why.NO_DISK()
    try:
        return do(place)
    except OSError as trouble:
        return why.DISK_UNUSABLE(place.directory, trouble.strerror or str(trouble))


def _configured(setting: str) -> str:
    """Return a setting of this session's magics; empty where there are none."""
    shell = host.shell()
    return str(getattr(None if shell is None else host.magics(shell), setting, ""))


def host_room(pid: int, proc: Path = PROC, cgroups: Path = host_memory.CGROUPS) -> int | None:
    """Return the bytes of host memory that a process may fill, without what must be left; None where it is unknown."""
    machine, room = host_memory.machine(proc), host_memory.untouched(pid, proc, cgroups)
    if room is None or "MemTotal" not in machine:
        return None
    rooms = [machine["MemAvailable"] - checks.host_margin(machine["MemTotal"])]
    rooms += [limit.untouched - checks.CGROUP_MARGIN for limit in host_memory.limits(proc, cgroups, pid)]
    rooms += _address_space(pid, proc)
    return max(0, min(rooms))


def users_limit() -> int | None:
    """Return the bytes of host memory that all of this user's parked processes may fill; None where nobody says.

    It is the lowest that the administrator's file, and this session's configuration ever since parking was turned on,
    have said. What is no size is none at all: nothing is parked.
    """
    said = [settings.of_file().values.get("parking_memory", ""), _configured("parking_memory")]
    _lowest.extend(_size(text) for text in said if text)
    _lowest[:] = sorted(_lowest)[:1]
    return _lowest[0] if _lowest else None


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except PolicyError:
        return 0


def _address_space(pid: int, proc: Path) -> list[int]:
    """Return the addresses that a process may still take, in bytes; nothing where it has no limit."""
    with contextlib.suppress(OSError, ValueError):
        limits = (proc / f"{pid}/limits").read_text()
        most = int(limits.partition("Max address space")[2].split()[0])  # `unlimited` is no number
        return [most - int((proc / f"{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")]
    return []


def given_back(gpu: Gpu, snapshot: Snapshot) -> Gpu:
    """Return a GPU as it is when this user's processes hold nothing of it: what others hold may stay for good."""
    own = sum(row.held or 0 for row in snapshot.processes if row.gpu == gpu.label and owned(row.pid))
    return gpu if gpu.free is None else gpu._replace(free=gpu.free + own)


def open_module(proc: Path = PROC) -> bool | None:
    """Tell whether the open kernel module is loaded; None where that is unknown."""
    machine = os.environ.get("TFGPU_SIMGPU")
    file = proc / "driver/nvidia/version" if machine is None else Path(f"{machine}.nvidia-version")
    with contextlib.suppress(OSError, IndexError):
        return "Open Kernel Module" in file.read_text().splitlines()[0]
    return None


def allowed_module(magics: Any) -> bool:
    """Tell whether the kernel module that is loaded is one under which these magics' settings allow to park."""
    return open_module() in ((False, True) if magics.parking_on_open_module else (False,))


def owned(pid: int) -> bool:
    """Tell whether a process is this user's."""
    with contextlib.suppress(OSError):
        return (PROC / str(pid)).stat().st_uid == os.geteuid()
    return False


def managed_mappings(pid: int) -> int | None:
    """Return how often a process has mapped the file of managed memory; None where that cannot be read."""
    machine = os.environ.get("TFGPU_SIMGPU")
    file = "/dev/nvidia-uvm" if machine is None else f"{os.path.realpath(machine)}.nvidia-uvm"
    with contextlib.suppress(OSError):
        mapped = (PROC / f"{pid}/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return sum(line.endswith(f" {file}") for line in mapped)
    return None


def children_on_driver(pid: int) -> tuple[int, ...]:
    """Return the descendants of a process that have the driver open, or may; looks of ours and workers do not count."""
    found = (child for child in sorted(descendants(pid)) if opens_driver(child) is not False and began(child))
    return tuple(child for child in found if not _looks(child))


def _looks(pid: int) -> bool:
    """Tell whether a process looks at the GPUs for us, makes our calls, or ends: it has no command line any more."""
    with contextlib.suppress(OSError):
        words = (PROC / f"{pid}/cmdline").read_text(encoding="utf-8", errors="surrogateescape").split("\0")
        return words == [""] or look.CODE in words or driver_worker.CODE in words
    return False
