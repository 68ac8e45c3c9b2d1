"""`%tf_gpu env`: a policy as shell lines, as far as variables can express it, or without one, the current policy."""

from __future__ import annotations

from tfgpu_magic.engine import engine
from tfgpu_magic.ground.answer import Code
from tfgpu_magic.policy import parser, script
from tfgpu_magic.policy.word import ParsedLine

MORE = 'In a shell:   eval "$(tfgpu env growth)"'
"""What the help adds in a shell."""

completions = parser.offers


def run(line: ParsedLine) -> Code:
    """Return the lines."""
    return Code(script.shell(engine.sketch(line.rest, line.frameworks) if line.rest else engine.decided()), "sh")
