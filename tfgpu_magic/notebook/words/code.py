"""`%tf_gpu code`: a policy as Python for a script, or without one, the current policy."""

from __future__ import annotations

from tfgpu_magic.engine import engine
from tfgpu_magic.ground.answer import Code
from tfgpu_magic.policy import parser, script
from tfgpu_magic.policy.word import ParsedLine

completions = parser.offers


def run(line: ParsedLine) -> Code:
    """Return the code."""
    if line.rest:
        return Code(script.python(engine.sketch(line.rest, line.frameworks)), "python")
    return Code(script.python(engine.decided(), engine.order()), "python")
