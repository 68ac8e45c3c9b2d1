"""Makes real cgroups for a test, where the tests run as root."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until


@contextlib.contextmanager
def cgroup_of(size: int) -> Iterator[Path]:
    """Make a cgroup whose processes may use so many bytes, and remove it when they have ended; or skip the test."""
    root, limit = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    if not root.exists():
        root, limit = Path("/sys/fs/cgroup"), "memory.max"
    folder = root / f"tfgpu-magic-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(size))
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        yield folder
    finally:
        _remove(folder)  # what was killed leaves it a moment later


_NUMBERS = itertools.count()


@contextlib.contextmanager
def cgroup2() -> Iterator[Path]:
    """Make a cgroup of version 2, and remove it and those that were made in it when their processes have ended.

    Where no such file system is mounted it is, for the block; or the test is skipped.
    """
    with contextlib.ExitStack() as stack:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        root = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
        if root is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            done = subprocess.run(["mount", "-t", "cgroup2", "none", root], check=False, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"no cgroups of version 2 here: {done.stderr}")
            stack.callback(lambda: subprocess.run(["umount", root], check=True))
        folder = root / f"tfgpu-magic-{os.getpid()}-{next(_NUMBERS)}"
        try:
            folder.mkdir()
        except OSError as error:
            pytest.skip(f"no cgroup can be made here: {error}")
        stack.callback(_remove, folder)
        yield folder


def _remove(folder: Path) -> None:
    for made in [one for one in folder.iterdir() if one.is_dir()]:
        _remove(made)
    until(lambda: not (folder / "cgroup.procs").read_text())
    until(lambda: _is_removed(folder))  # it is busy for a moment after its last process


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
