"""`%tf_gpu help`, and what `%tf_gpu?` shows: all commands of a notebook, or one, from the table."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Sequence

from tfgpu_magic.ground.answer import Code
from tfgpu_magic.ground.message import RESTART, WAIT
from tfgpu_magic.notebook.words import arguments, table
from tfgpu_magic.policy.parser import WIDTH, find, flags, usage
from tfgpu_magic.policy.word import CellForm, ParsedLine, Word

_LINE = f"""Set TensorFlow's GPU memory up before its first op, and see who holds what.

Usage: %tf_gpu COMMAND [{RESTART}] [{table.WAITS.usage}]"""

_POLICY = f"""Several at once: `%tf_gpu pick 1; limit 2GiB`. GPU numbers are nvidia-smi's.
Later commands replace earlier ones for the GPUs that they name. Sizes are in
KiB MiB GiB TiB, kB MB GB TB, or % of a GPU's memory. A limit is TensorFlow's
pool: CUDA's context, some hundred MiB, comes on top of it.

When TensorFlow uses the GPUs already, {RESTART} restarts this kernel and
applies the line in the new one. When other processes hold too much, {WAIT}
waits for room, at most 30m or TIME; your own notebooks take turns."""


def text(words: Sequence[Word]) -> str:
    """Return the help."""
    above = {word.name: word.above for word in words if word.above is not None}
    lines = "\n".join([_LINE, *(_usage_line(name, form) for name, form in above.items())])
    forms = [part for form in above.values() for part in (textwrap.fill(form.meaning, WIDTH), flags(form.flags))]
    groups = [f"{group}:\n{usage(tuple(some))}" for group, some in itertools.groupby(words, lambda word: word.group)]
    return "\n\n".join([lines, *groups, _POLICY, *forms]) + "\n"


def _usage_line(name: str, form: CellForm) -> str:
    """Return how a word is written above a cell, in lines that are aligned with the usage in `_LINE`."""
    begin = f"       %%tf_gpu {name} "
    parts = [f"[{part}]".replace(" ", "\0") for part in (*(flag.usage for flag in form.flags), form.rest) if part]
    filled = textwrap.fill(
        " ".join(parts), WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin), break_on_hyphens=False
    )
    return filled.replace("\0", " ")


def run(line: ParsedLine) -> Code:
    """Return the help, or that of the word that is named."""
    if not line.rest:
        return Code(text(table.in_notebooks()), "text")
    word = find(line.rest, table.in_notebooks())
    forms = [form if form.startswith("%") else f"%{line.magic} {form}" for form in word.usage]
    above = word.above
    both = dict.fromkeys((*word.flags, *(above.flags if above else ())))
    about = textwrap.fill(above.meaning, WIDTH) if above else ""
    return Code(arguments.explained(forms, word.meaning, tuple(both), about), "text")


def completions(tokens: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    """Return the commands that can be explained."""
    return [] if tokens else [word.name for word in table.in_notebooks()]
