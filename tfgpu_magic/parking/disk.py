"""Where GPU state may lie on disk: in a file without a name, so that nobody else finds it and it ends with its process.

The process whose state it is has the file open as long as that is away; its worker opens it by that.
Source: open(2), ``O_TMPFILE``; proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tfgpu_magic.units import BINARY, parse_bytes

LOCAL: tuple[str, ...] = ("ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay")
"""Kinds of file systems that are on this machine's own disks."""
MARGIN = 4 * BINARY["GiB"]  # bytes of a file system that must be left beside what goes there

_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class DiskPlace:
    """What an administrator gives parking of the disks."""

    directory: str  # where files may be made
    most: int  # bytes that all of a user's processes may fill there together

    @classmethod
    def read(cls, text: str) -> DiskPlace | None:
        """Read ``500GiB in /scratch``; None is nowhere, and what is no size is a `PolicyError`."""
        size, _, directory = text.partition(" in ")
        return cls(directory.strip(), parse_bytes(size)) if directory.strip() else None

    def left(self) -> int:
        """Return the bytes that may still be written there, by whomever; an `OSError` says why it cannot be used."""
        kind = _kind(os.path.realpath(self.directory))
        if kind not in LOCAL:
            raise OSError(0, f"its file system is {kind}, and is not known to be a disk of this machine")
        about = os.statvfs(self.directory)
        return max(0, about.f_bavail * about.f_frsize - MARGIN)

    def make(self) -> int:
        """Make a file there that only its user may read, and return its descriptor; what fails is an `OSError`."""
        return os.open(self.directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _kind(path: str) -> str:
    """Return the kind of the file system that a path lies on."""
    found, kind = "", "unknown"
    for line in _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        mount = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4])
        if len(mount) >= len(found) and f"{path}/".startswith(f"{mount.rstrip('/')}/"):
            found, kind = mount, after.split()[0]  # of two at one place the later one counts
    return kind
