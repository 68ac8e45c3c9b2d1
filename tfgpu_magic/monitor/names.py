"""What notebooks are called now, by their kernels' ids: a server knows a rename, and a kernel its path at its start.

A server keeps the names on the board; `report_files` and `owners` use them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import PurePath
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.directory import CHECK, checked, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfgpu_magic.monitor.directory import BoardDirectory

NAME = "names-1"
"""The file's name, with the version of its content: JSON, a path for each kernel's id, the newest last."""
MOST = 500
"""How many names are kept; kernels that have ended are dropped in this way."""
LARGEST = 2**20
"""The largest file, in bytes; what is longer is not read."""


def kernel_id(words: Iterable[str]) -> str:
    """Return a kernel's id from its command line, which names its connection file; empty of what is no kernel.

    Source: jupyter_client calls the file ``kernel-ID.json``, and every kernel gets its path.
    """
    files = (PurePath(word.rpartition("=")[2]) for word in words if word.endswith(".json"))
    return next((file.stem.removeprefix("kernel-") for file in files if file.stem.startswith("kernel-")), "")


def rename(place: BoardDirectory, kernel: str, path: str) -> None:
    """Keep what a kernel's notebook is called now.

    Args:
        place: where the board is.
        kernel: the kernel's id.
        path: the notebook's path in the file system.

    Raises:
        OSError: it cannot be written.
        MonitorError: something else is in the file's place.
    """
    fd = place.open(NAME, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        known = {one: called for one, called in _parsed(fd).items() if one != kernel}
        kept = dict([*known.items(), (kernel, path)][-MOST:])
        os.pwrite(fd, checked(json.dumps(kept).encode()), 0)
    finally:
        os.close(fd)


def read(places: Sequence[BoardDirectory]) -> Mapping[str, str]:
    """Return the path of each notebook that was renamed, by its kernel's id; the first directory has the last word."""
    found: dict[str, str] = {}
    for place in reversed(places):
        with contextlib.suppress(OSError, MonitorError):
            fd = place.open(NAME, os.O_RDONLY)
            try:
                found |= _parsed(fd)
            finally:
                os.close(fd)
    return found


def _parsed(fd: int) -> dict[str, str]:
    with contextlib.suppress(ValueError):
        names = json.loads(whole(os.pread(fd, CHECK + LARGEST, 0)) or b"{}")
        return {str(kernel): str(path) for kernel, path in names.items()} if isinstance(names, dict) else {}
    return {}
