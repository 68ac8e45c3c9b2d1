"""`%tf_gpu help`, and the text that `%tf_gpu?` shows: it is made from the `Word` of each word."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence

from tfgpu_magic.ground.answer import Code
from tfgpu_magic.ground.message import RESTART
from tfgpu_magic.notebook.words import table
from tfgpu_magic.policy.parser import WIDTH, flags, usage
from tfgpu_magic.policy.word import Above, ParsedLine, Word

_LINE = f"""Set TensorFlow's GPU memory up before its first op, and see who holds what.

Usage: %tf_gpu WORDS [{RESTART}]"""

_POLICY = f"""Several at once: `%tf_gpu pick 1; limit 2GiB`. GPU numbers are nvidia-smi's.
Later words replace earlier ones for the GPUs that they name. Sizes are in KiB
MiB GiB TiB, kB MB GB TB, or % of a GPU's memory. A limit is TensorFlow's pool:
CUDA's context, some hundred MiB, comes on top of it.

When TensorFlow uses the GPUs already, {RESTART} restarts this kernel and
applies the words in the new one."""


def text(words: Sequence[Word]) -> str:
    """Return the help."""
    above = {word.name: word.above for word in words if word.above is not None}
    lines = "\n".join([_LINE, *(_written(name, form) for name, form in above.items())])
    forms = [part for form in above.values() for part in (textwrap.fill(form.meaning, WIDTH), flags(form.flags))]
    groups = [f"{group}:\n{usage(tuple(some))}" for group, some in itertools.groupby(words, lambda word: word.group)]
    return "\n\n".join([lines, *groups, _POLICY, *forms]) + "\n"


def _written(name: str, form: Above) -> str:
    """Return how a word is written above a cell, in lines that are aligned with the usage in `_LINE`."""
    begin = f"       %%tf_gpu {name} "
    parts = [f"[{part}]".replace(" ", "\0") for part in (*(flag.usage for flag in form.flags), form.rest) if part]
    filled = textwrap.fill(
        " ".join(parts), WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin), break_on_hyphens=False
    )
    return filled.replace("\0", " ")


def answer(line: ParsedLine) -> Code:
    """Return the help."""
    del line
    return Code(text(table.WORDS), "text")
