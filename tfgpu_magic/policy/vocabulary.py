"""The words of a policy, and what all words need: to be found by name, explained, completed and suggested. Pure."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from tfgpu_magic.errors import UnknownWord
from tfgpu_magic.policy.arguments import SIZES, is_number, readings
from tfgpu_magic.policy.requests import REQUESTS, default
from tfgpu_magic.policy.word import Flag, Word

POLICY_WORDS = tuple(request.WORD for request in REQUESTS)

_GIVES_BACK = (
    "TensorFlow gives memory back to the driver only when its process ends, unless `%tf_gpu growth --release` was said "
    "before its first use. Restart the kernel, or run such work in a cell that begins with `%%tf_gpu isolate`: its "
    "process ends with it. `%tf_gpu free` lets go of what nobody needs, for TensorFlow to use again."
)
_IMPOSSIBLE = dict.fromkeys(("reset", "clear", "unset"), f"{default.DROPS} {_GIVES_BACK}")
"""Answers to words that other tools have for what is not possible in a process that lives on."""

_FLAGS = dict.fromkeys(("--growth", "--cap"), "--grow")
"""Flags that people may try instead of a policy's, and that do not look like them."""

_FLAG_VALUES = {"--need": SIZES}
"""What to offer behind a flag that takes something else than GPUs."""

WIDTH = 80
"""Characters in a line of the help: a cell of a notebook shows so many in one line beside an open sidebar."""


def usage(words: Iterable[Word]) -> str:
    """Return the words and their meanings as aligned text."""
    return _aligned([(word.usage, word.meaning) for word in words])


def flags(above: Iterable[Flag]) -> str:
    """Return the flags that stand above a cell and their meanings as aligned text."""
    return _aligned([((flag.usage,), flag.meaning) for flag in above])


def _aligned(entries: Sequence[tuple[tuple[str, ...], str]]) -> str:
    """Return forms with their meanings beside them, in lines of `WIDTH` characters that break between words."""
    margin = 4 + max(len(form) for forms, _ in entries for form in forms)
    rows = [
        row
        for forms, meaning in entries
        for row in itertools.zip_longest(forms, textwrap.wrap(meaning, WIDTH - margin), fillvalue="")
    ]
    return "\n".join(f"  {form:<{margin - 2}}{meaning}".rstrip() for form, meaning in rows)


def find(name: str, words: Sequence[Word]) -> Word:
    """Return the word of that name.

    Raises:
        UnknownWord: there is no such word; the error's text suggests the nearest.
    """
    for word in words:
        if name.lower() in word.names:
            return word
    raise UnknownWord(f"{name!r} is not a word of %tf_gpu.{_instead(name.replace(',', '.'), words)}", name)


def _instead(name: str, words: Sequence[Word]) -> str:
    """Return a sentence with what to write instead of an unknown word."""
    if is_number(name):
        return f" For a limit, write `%tf_gpu limit` and {readings(name)}."
    if re.match(r"[0-9]", name):
        return f" For a limit, write `%tf_gpu limit {name}`."
    tried = {**_IMPOSSIBLE, **{tried: word.instead for word in words for tried in word.tried}}
    if name.lower() in tried:
        return f" {tried[name.lower()]}"
    if name.startswith("--"):
        return " A flag stands behind its word, as in `limit 2GiB --grow`."
    return f"{nearest(name, [word.name for word in words])} `%tf_gpu?` explains them."


def nearest(wrong: str, known: Iterable[str], tried: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a sentence with the known word that the wrong one may mean; else with all known words.

    Args:
        wrong: the unknown word.
        known: all known words.
        tried: known words by other words that may be written for them and do not look like them.
    """
    import difflib  # only a mistake needs it

    known, tried = list(known), {**_FLAGS, **tried}
    near = [tried[wrong.lower()]] if tried.get(wrong.lower()) in known else []
    near = near or difflib.get_close_matches(wrong.lower(), known, n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(known)}." if known else ""


def offers(typed: Sequence[str], gpus: Callable[[], Sequence[str]], *more: str) -> list[str]:
    """Return what may follow in a policy.

    Args:
        typed: its tokens so far.
        gpus: returns the labels of the GPUs that can be named.
        more: what may follow a request besides its own values and flags.
    """
    request = " ".join(typed).rpartition(";")[2]
    tokens = request.replace(",", " ").lower().split()
    if not tokens:
        return [row.WORD.name for row in REQUESTS]
    row = next((row for row in REQUESTS if row.WORD.name == tokens[0]), None)
    if row is None:
        return []
    flags, last = dict(row.WORD.flags), tokens[-1].rstrip("=")
    if flags.get(last):
        return list(_FLAG_VALUES.get(last) or gpus())
    if request.endswith("="):
        return list(SIZES)
    offered = [*row.offers(tokens[1:], gpus), *flags, *more]
    return [word for word in offered if word.lower() not in tokens]
