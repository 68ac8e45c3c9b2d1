"""`%tf_gpu tensors`: what holds this notebook's memory of the GPUs, by name."""

from __future__ import annotations

from tfgpu_magic.insight.objects.tensors import Tensors, tensors
from tfgpu_magic.policy.word import ParsedLine

_ALL = "--all"


def answer(line: ParsedLine) -> Tensors:
    """Return what holds it."""
    if line.rest not in ("", _ALL):
        raise line.word.error(f"`tensors {line.rest}` cannot be shown.")
    return tensors(everything=line.rest == _ALL)
