"""`%tf_gpu top`: the live table; where no front end draws it, as in a terminal, one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.config.word import Line, Word
from tfgpu_magic.host import host
from tfgpu_magic.words import status

if TYPE_CHECKING:
    from tfgpu_magic.views.status import Status
    from tfgpu_magic.views.widget import MemoryTable


def _answer(line: Line) -> MemoryTable | Status:
    if host() != "kernel":
        return status.look(line).once()
    from tfgpu_magic.views.widget import MemoryTable  # ipywidgets is slow to import

    return MemoryTable()


WORD = Word(
    "top",
    ("top",),
    "the same as a live table, in a notebook: it goes on while cells run",
    tried=("watch", "live", "monitor"),
    instead="The live table is `%tf_gpu top`.",
    answer=_answer,
)
