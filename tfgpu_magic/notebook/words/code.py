"""`%tf_gpu code`: a policy as Python for a script; without one, the current policy."""

from __future__ import annotations

from tfgpu_magic.engine import control
from tfgpu_magic.model.answer import Code
from tfgpu_magic.policy import script, vocabulary
from tfgpu_magic.policy.word import Line

offers = vocabulary.offers


def answer(line: Line) -> Code:
    """Return the code."""
    if line.rest:
        return Code(script.python(control.sketch(line.rest, line.frameworks)), "python")
    return Code(script.python(control.decided(), control.order()), "python")
