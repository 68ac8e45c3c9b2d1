"""Whether a process has the driver open: one that has not holds no GPU memory, and its listed pid means another."""

from __future__ import annotations

import os

from tfgpu_magic.monitor.pids import began
from tfgpu_magic.monitor.sources import SOURCES

_DEVICES = tuple(file for source in SOURCES for file in source.files or ("",))
"""Prefixes of the files by which a driver is reached."""


def opens_driver(pid: int) -> bool | None:
    """Tell whether a process of this user has a file of the driver open or mapped; this takes some 100 µs.

    Args:
        pid: the process id.

    Returns:
        Whether it has; None where that cannot be read.
    """
    machine = os.environ.get("TFGPU_SIMGPU")
    files = _DEVICES if machine is None else (os.path.realpath(machine),)
    folder = f"/proc/{pid}/fd"
    try:
        if any(_target(f"{folder}/{name}").startswith(files) for name in os.listdir(folder)):  # noqa: PTH208
            return True
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as maps:  # noqa: PTH123
            return any(line[line.find("/") :].startswith(files) for line in maps if "/" in line)
    except OSError:
        return None


def holder_began(pid: int) -> int | None:
    """Return when a process that the driver lists began; None where it is none of this machine's, or has ended.

    Of another user's process nothing else is read.
    """
    start = began(pid)
    try:
        mine = os.stat(f"/proc/{pid}").st_uid == os.getuid()  # noqa: PTH116
    except OSError:
        return None
    return None if mine and opens_driver(pid) is False else start


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115
    except FileNotFoundError:  # closed meanwhile
        return ""
