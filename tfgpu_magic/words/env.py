"""`%tf_gpu env`: a policy as shell lines, as far as variables can express it; without one, the current policy."""

from __future__ import annotations

from tfgpu_magic import control
from tfgpu_magic.config import script, vocabulary
from tfgpu_magic.config.word import Line
from tfgpu_magic.views.answer import Code

offers = vocabulary.offers


def answer(line: Line) -> Code:
    """Return the lines."""
    return Code(script.shell(control.sketch(line.rest, line.frameworks) if line.rest else control.decided()), "sh")
