"""`%tf_gpu status`, and `%tf_gpu` alone: one snapshot of the GPUs."""

from __future__ import annotations

from tfgpu_magic.engine.status import Status, status
from tfgpu_magic.policy.word import ParsedLine


def run(_: ParsedLine) -> Status:
    """Return the status of the GPUs now."""
    return status()
