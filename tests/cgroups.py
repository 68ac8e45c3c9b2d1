"""Makes a real memory cgroup for a test, where the tests run as root."""

from __future__ import annotations

import contextlib
import os
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
        until(lambda: not (folder / "cgroup.procs").read_text())  # what was killed leaves it a moment later
        folder.rmdir()
