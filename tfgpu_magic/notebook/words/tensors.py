"""`%tf_gpu tensors`: what holds this notebook's memory of the GPUs, by name."""

from __future__ import annotations

from tfgpu_magic.insight.objects.tensors import Tensors, tensors
from tfgpu_magic.policy.word import ParsedLine


def run(line: ParsedLine) -> Tensors:
    """Return what holds it."""
    return tensors(everything="--all" in line.flags)
