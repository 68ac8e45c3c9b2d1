"""`%tf_gpu why`: why the last cell ran out of GPU memory, and what would help, once more."""

from __future__ import annotations

from tfgpu_magic.config.word import Line
from tfgpu_magic.insight.why import explaining
from tfgpu_magic.views.why import Why


def answer(_: Line) -> Why:
    """Return what was shown below the cell."""
    return Why(explaining.last().explanation, asked=True)
