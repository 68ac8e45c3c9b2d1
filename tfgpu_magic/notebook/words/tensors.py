"""`%tf_gpu tensors`: what holds this notebook's memory of the GPUs, by name."""

from __future__ import annotations

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.insight.objects.tensors import Tensors, tensors
from tfgpu_magic.policy.word import Line

_ALL = "--all"


def answer(line: Line) -> Tensors:
    """Return what holds it."""
    if line.rest not in ("", _ALL):
        raise PolicyError(f"`tensors {line.rest}` cannot be shown.{line.word.forms}")
    return tensors(everything=line.rest == _ALL)
