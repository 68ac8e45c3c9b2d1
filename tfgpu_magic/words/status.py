"""`%tf_gpu status`, and `%tf_gpu` alone: one snapshot of the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic import control
from tfgpu_magic.config.word import Line

if TYPE_CHECKING:
    from tfgpu_magic.views.status import Status


def answer(_: Line) -> Status:
    """Return the status of the GPUs now."""
    return control.status()
