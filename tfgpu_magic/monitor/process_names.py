"""Names processes: a kernel by its notebook's path, others by their programs, and never by their arguments."""

from __future__ import annotations

import psutil

from tfgpu_magic.monitor.program_names import ISOLATED, notebook_path, short_command


def notebook(process: psutil.Process) -> str:
    """Return the path of a kernel's notebook: Jupyter Server gives it to each kernel that it starts."""
    try:
        return notebook_path(process.environ())
    except psutil.AccessDenied:
        return ""


def command(process: psutil.Process) -> str:
    """Return the name of a process, as `short_command`."""
    try:
        return short_command(process.name(), process.cmdline())
    except psutil.AccessDenied:
        return str(process.name())


def is_call(process: psutil.Process) -> bool:
    """Tell whether a process of this user is an isolated call, and not the fork server.

    Raises:
        psutil.Error: it has ended, or may not be read.
    """
    parent = process.parent()
    return command(process) == ISOLATED and parent is not None and command(parent) == ISOLATED
