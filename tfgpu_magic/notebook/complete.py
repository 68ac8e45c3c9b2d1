"""Tab completion of `%tf_gpu` in IPython, from the table of commands and what their modules add."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from IPython.core import completer
from IPython.core.interactiveshell import InteractiveShell

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.machine.see import look
from tfgpu_magic.notebook.words import arguments, table
from tfgpu_magic.notebook.words.line import module, split_name
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.word import Word

FRESH = 30.0
"""Seconds for which the list of GPUs is recent enough for completing a line."""
LOOK_TIMEOUT = 0.5
"""Seconds that Tab waits for the GPUs. Without them it offers all but their numbers."""

FIRST = ("limit", "growth", "pick", "top")
"""The commands that most people want come first, and the others in the order of the help."""

_gpus: tuple[float, list[str]] = (-FRESH, [])

_LINE = re.compile(r"\s*(?:(?P<percent>%{0,2})tf_gpu|(?P<other>%{1,2})gpu)(?P<rest>\s+(?![=.(\[]).*|\s+)", re.DOTALL)


class Completion(NamedTuple):
    """What may stand at the cursor.

    Attributes:
        fragment: the part of the word that is typed already.
        words: the words that it may become; empty if nothing may stand there.
    """

    fragment: str
    words: tuple[str, ...]


def in_context(line: str) -> dict[str, Any]:
    """Return the completions at the end of a `%tf_gpu` line, where Python's names and files are suppressed."""
    found = _completion(line)
    if found is None:
        return {"completions": []}
    words = [completer.SimpleCompletion(text=word, type="magic") for word in found.words]
    return {"completions": words or _Nothing(), "suppress": True, "matched_fragment": found.fragment, "ordered": True}


def of_text(line: str, text: str) -> list[str]:
    """Return the same before IPython 8.6, as in Colab: there a matcher cannot suppress the others.

    Args:
        line: the line up to the cursor.
        text: the part of it that IPython completes.
    """
    found = _completion(line)
    if found is None or not text.endswith(found.fragment):
        return []
    start = text.removesuffix(found.fragment)
    return [start + word for word in found.words]


class _Nothing:
    """Completions of length one that give nothing: IPython ignores the suppression of a matcher that has none."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[object]:
        return iter(())


def _completion(line: str) -> Completion | None:
    """Return what may stand at the end of a line up to the cursor, or None if it is no line of ours."""
    ours = _LINE.fullmatch(line)
    if ours is None:
        return None
    fragment = re.split(r"[\s,;=]", ours["rest"])[-1]
    name, rest = split_name(ours["rest"].removesuffix(fragment).lstrip())
    above = "%%" in (ours["percent"], ours["other"])
    fitting = [word for word in table.in_notebooks() if word.above or not above]
    first = next((word for word in fitting if name and name.lower() in word.names), None)
    if first is None:
        names = [word.name for word in fitting]
        found = [] if name or rest else [*(one for one in FIRST if one in names), *names]
    else:
        found = _following(first, rest.split(), above=above)
    begun = (word for word in found if word.lower().startswith(fragment.lower()))
    return Completion(fragment, tuple(dict.fromkeys(begun)))


def _following(word: Word, tokens: Sequence[str], *, above: bool) -> list[str]:
    """Return what may follow a word and its tokens: the values of a flag, or values and the flags that are left."""
    if word.restart and tokens[-1:] == [table.WAITS.name]:
        return list(table.WAITS.values)
    if word.restart:
        return list(module(word).completions([word.name, *tokens], _labels))  # the word is a part of its policy
    flags, takes = (word.above.flags, word.above.rest) if above and word.above else (word.flags, word.takes)
    named = "|".join(re.escape(flag.name) for flag in flags if flag.takes == "NAMES")
    if named and re.search(rf"(?:^| )(?:{named})(?:[ =](?:\S*,)?)?$", " ".join(tokens)):
        return _names()
    last = tokens[-1].rstrip("=") if tokens else ""
    for flag in flags:
        if flag.takes and flag.name == last:
            return list(flag.values)
    values: list[str] = []
    if takes == "POLICY":
        try:
            _, policy = arguments.parse(word.name, tokens, flags, takes, "")
        except PolicyError:
            return []
        values = parser.offers([" ".join(policy)], _labels)
    elif takes:
        values = module(word).completions(tokens, _labels)
    given = {token.partition("=")[0] for token in tokens}
    return [*values, *(flag.name for flag in flags if flag.name not in given)]


def _labels() -> list[str]:
    """Return the labels of the GPUs that can be named, at most `FRESH` seconds old."""
    global _gpus  # a cache of one
    if time.monotonic() - _gpus[0] > FRESH:
        _gpus = (time.monotonic(), [gpu.label for gpu in look(timeout=LOOK_TIMEOUT).gpus if not gpu.mig])
    return _gpus[1]


def _names() -> list[str]:
    """Return the names that the notebook has defined."""
    shell = InteractiveShell.instance()
    return [name for name in shell.user_ns if name not in shell.user_ns_hidden and not name.startswith("_")]
