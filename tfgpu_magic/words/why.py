"""`%tf_gpu why`: why the last cell ran out of GPU memory, and what would help, once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.config.word import Line, Word

if TYPE_CHECKING:
    from tfgpu_magic.views.why import Why


def _answer(_: Line) -> Why:
    from tfgpu_magic.insight.why import showing  # all words are imported when one is said

    return showing.last()


WORD = Word(
    "why",
    ("why",),
    "why the last cell that ran out of GPU memory did, and what would help; shown by itself below its error",
    tried=("oom", "explain", "debug", "diagnose", "error"),
    instead="Why a cell ran out of memory is `%tf_gpu why`.",
    answer=_answer,
)
