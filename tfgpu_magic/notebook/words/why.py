"""`%tf_gpu why`: why the last cell ran out of GPU memory, and what would help, once more."""

from __future__ import annotations

from tfgpu_magic.insight.why import explaining
from tfgpu_magic.insight.why.answer import Why
from tfgpu_magic.policy.word import ParsedLine


def run(_: ParsedLine) -> Why:
    """Return what was shown below the cell."""
    return Why(explaining.explain_last().explanation, asked=True)
