"""Whether a process has the driver open: without that it holds nothing, and a pid that says so is somebody else's."""

from __future__ import annotations

import os

from tfgpu_magic.monitor.sources import SOURCES

_DEVICES = tuple(file for source in SOURCES for file in source.files or ("",))
"""How the files begin that a driver is reached by."""


def opens_driver(pid: int) -> bool | None:
    """Tell whether a process of ours has a file of the driver open, or mapped: some 100 µs.

    Args:
        pid: the process id.

    Returns:
        None where that cannot be read.
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


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115
    except FileNotFoundError:  # closed meanwhile
        return ""
