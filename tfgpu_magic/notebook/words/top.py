"""`%tf_gpu top`: the live table; where no front end draws it, as in a terminal, one snapshot."""

from __future__ import annotations

from tfgpu_magic.engine.status import Status, status
from tfgpu_magic.host import host
from tfgpu_magic.notebook.widget import MemoryTable
from tfgpu_magic.policy.word import Line


def answer(_: Line) -> MemoryTable | Status:
    """Return the table."""
    if host() != "kernel":
        return status().once()
    return MemoryTable()
