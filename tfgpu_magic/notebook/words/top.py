"""`%tf_gpu top`: the live table, or if no front end draws it, as in a terminal, one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.engine.status import Status, status
from tfgpu_magic.ground.process_kind import process_kind
from tfgpu_magic.policy.word import ParsedLine

if TYPE_CHECKING:
    from tfgpu_magic.notebook.widget import MemoryTable


def run(_: ParsedLine) -> MemoryTable | Status:
    """Return the table."""
    if process_kind() != "kernel":
        return status().once()
    from tfgpu_magic.notebook.widget import MemoryTable  # a terminal shows none, and ipywidgets is slow to import

    return MemoryTable()
