"""Reads once of a process that holds memory what `unused` keeps of it: when it began, and what it is called."""

from __future__ import annotations

import os
from pathlib import Path

from tfgpu_magic.monitor.driver_users import opens_driver
from tfgpu_magic.monitor.pids import began
from tfgpu_magic.monitor.program_names import notebook_path, short_command
from tfgpu_magic.monitor.unused import Holder


def about(pid: int) -> Holder | None:
    """Read of a process when it began and, if it is this user's, the name of its notebook or program.

    Args:
        pid: the process id, as the driver gives it.

    Returns:
        The facts; None where there is no such process here, or it cannot be the one that the driver means.
    """
    start = began(pid)
    folder = Path(f"/proc/{pid}")
    try:
        if start is None:
            return None
        if folder.stat().st_uid != os.getuid():
            return Holder(start, "")
        if opens_driver(pid) is False:
            return None
        return Holder(start, _name(folder))
    except OSError:
        return None


def _name(folder: Path) -> str:
    variables = (part.partition("=") for part in _parts(folder / "environ"))
    path = notebook_path({name: value for name, _, value in variables if name == "JPY_SESSION_NAME"})
    return path or short_command((folder / "comm").read_text(errors="replace").strip(), _parts(folder / "cmdline"))


def _parts(path: Path) -> list[str]:
    return path.read_text(errors="replace").rstrip("\0").split("\0")
