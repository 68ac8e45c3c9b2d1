"""`%tf_gpu status`, and `%tf_gpu` alone: one snapshot of the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.engine import control
from tfgpu_magic.policy.word import Line

if TYPE_CHECKING:
    from tfgpu_magic.engine.status_answer import Status


def answer(_: Line) -> Status:
    """Return the status of the GPUs now."""
    return control.status()
