"""The files as this process and its children see them: other users reach this Python, and /usr/local/etc is ours."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SYSTEM = Path("/usr/local/etc")
"""Where IPython and Jupyter look for what an administrator says to everybody. Nothing of it is kept."""

_CLONE_NEWNS = 0x00020000


def enter() -> None:
    """Have a view of one's own from now on: the machine's files stay as they are, and it goes with this process.

    Raises:
        OSError: that is not allowed here, as in a container without CAP_SYS_ADMIN.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "no mount namespace can be made here, which needs CAP_SYS_ADMIN")
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(SYSTEM))
    _open_up(ROOT, Path(sys.base_prefix))


def _open_up(*paths: Path) -> None:
    """Let other users reach these folders: one above them that is closed shows them and nothing else."""
    opened = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in paths}
    closed = {path: folder for path in paths if (folder := _closed(path)) is not None}
    for folder in set(closed.values()):
        print(f"{folder} is closed to other users: the Hub has a view of it with what they need only.", flush=True)
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(folder))
    for path in closed:
        path.mkdir(parents=True, exist_ok=True)
        mount("--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{opened[path]}", str(path))
    for descriptor in opened.values():
        os.close(descriptor)


def _closed(path: Path) -> Path | None:
    """Return the topmost folder above a path that others may not enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)


def mount(*arguments: str) -> None:
    """Mount something, in this view."""
    subprocess.run(["mount", *arguments], check=True)
