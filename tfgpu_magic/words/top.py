"""`%tf_gpu top`: the live table; where no front end draws it, as in a terminal, one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic import control
from tfgpu_magic.config.word import Line
from tfgpu_magic.host import host

if TYPE_CHECKING:
    from tfgpu_magic.views.status import Status
    from tfgpu_magic.views.widget import MemoryTable


def answer(_: Line) -> MemoryTable | Status:
    """Return the table."""
    if host() != "kernel":
        return control.status().once()
    from tfgpu_magic.views.widget import MemoryTable  # ipywidgets is slow to import

    return MemoryTable()
