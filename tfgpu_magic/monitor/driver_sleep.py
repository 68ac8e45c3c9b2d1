"""Decides when to close the driver so that a laptop's GPU can sleep: an open one keeps it awake and costs watts."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgpu_magic.model.snapshot import Snapshot

ASLEEP = "The GPUs sleep to save power, and nobody uses them. They are asked again when somebody does."
IDLE_FOR = 10.0
"""Seconds without a process on any GPU after which the driver is closed."""
SLEEP_TIMEOUT = 20.0
"""Seconds in which a GPU that can sleep falls asleep; for one that has not, the driver is not closed again."""

_PCI = Path("/sys/bus/pci/devices")
_VENDORS = {source.vendor for source in SOURCES}
_DISPLAY = "0x03"  # the prefix of the class of graphics and 3D controllers (pci_ids.h)


class DriverSleep:
    """The decisions when the driver is closed. Times are those of the monotonic clock."""

    def __init__(self) -> None:
        self._gpus = tuple(_gpus())
        self._idle_since: float | None = None
        self._trying_since: float | None = None
        self._awake = False

    def asleep(self) -> bool:
        """Tell whether all GPUs of this machine sleep, without waking any."""
        asleep = self._all("runtime_status", "suspended")
        if asleep:
            self._trying_since = None  # whatever wakes them justifies a reading
        return asleep

    def begins(self, snapshot: Snapshot, now: float) -> bool:
        """Tell after a reading whether to close the driver: no GPU was in use for a while, and all may sleep."""
        if self._awake or snapshot.error or snapshot.processes or not self._all("control", "auto"):
            self._idle_since = None
            return False
        self._idle_since = now if self._idle_since is None else self._idle_since
        if now - self._idle_since < IDLE_FOR:
            return False
        self._idle_since, self._trying_since = None, now
        return True

    def goes_on(self, now: float) -> bool:
        """Tell whether the driver stays closed for GPUs that are still awake."""
        if self._trying_since is None:
            return False
        if now - self._trying_since < SLEEP_TIMEOUT:
            return True
        self._trying_since, self._awake = None, True
        return False

    def _all(self, file: str, value: str) -> bool:
        """Tell whether a power file of all GPUs has this value (sysfs-devices-power, Linux); there must be some."""
        return {_text(gpu / "power" / file) for gpu in self._gpus} == {value}


def _gpus() -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for device in _PCI.iterdir():
            if _text(device / "vendor") in _VENDORS and _text(device / "class").startswith(_DISPLAY):
                yield device


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
