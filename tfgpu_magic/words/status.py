"""`%tf_gpu status`, and `%tf_gpu` alone: one snapshot of the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic import control
from tfgpu_magic.config.requests import limit
from tfgpu_magic.config.word import Line, Word

if TYPE_CHECKING:
    from tfgpu_magic.views.status import Status


def look(_: Line) -> Status:
    """Return the status of the GPUs now."""
    return control.status()


WORD = Word(
    "status",
    ("status",),
    "GPUs, processes and this kernel's TensorFlow at one look; also `%tf_gpu` alone",
    also=("",),
    tried=("memory", "mem", "usage", "info", "nvidia-smi"),
    instead=f"Who holds what is `%tf_gpu status`. {limit.EXAMPLES}",
    answer=look,
)
