"""Tab completion of `%tf_gpu` in IPython: `at` decides, from the words of a line alone, what may stand at its end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from IPython.core import completer
from IPython.core.interactiveshell import InteractiveShell

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.machine.see import look
from tfgpu_magic.notebook.words import arguments, table
from tfgpu_magic.notebook.words.line import module, parted
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.word import Word

FRESH = 30.0
"""Seconds for which the list of GPUs is recent enough for completing a line."""
LOOK_TIMEOUT = 0.5
"""Seconds that Tab waits for the GPUs; without them it offers all but their numbers."""

_gpus: tuple[float, list[str]] = (-FRESH, [])

_LINE = re.compile(r"\s*(?:(?P<percent>%{0,2})tf_gpu|(?P<other>%{1,2})gpu)(?P<rest>\s+(?![=.(\[]).*|\s+)", re.DOTALL)


class Offer(NamedTuple):
    """The completions at the cursor.

    Attributes:
        fragment: the part of the word that is typed already.
        words: the words that it may become; empty if nothing may stand there.
    """

    fragment: str
    words: tuple[str, ...]


def at(
    line: str,
    words: Sequence[Word],
    gpus: Callable[[], Sequence[str]],
    names: Callable[[], Iterable[str]],
) -> Offer | None:
    """Return what may stand at the end of a line, or None if it is no line of `%tf_gpu`.

    Args:
        line: the line up to the cursor.
        words: all words of the magic.
        gpus: returns the labels of the GPUs that can be named.
        names: returns the notebook's names.
    """
    ours = _LINE.fullmatch(line)
    if ours is None:
        return None
    fragment = re.split(r"[\s,;=]", ours["rest"])[-1]
    name, rest = parted(ours["rest"].removesuffix(fragment).lstrip())
    above = "%%" in (ours["percent"], ours["other"])
    fitting = [word for word in words if word.above or not above]
    first = next((word for word in fitting if name and name.lower() in word.names), None)
    if first is None:
        offered = [] if name or rest else [word.name for word in fitting]
    else:
        offered = _behind(first, rest.split(), gpus, names, above=above)
    begun = (word for word in offered if word.lower().startswith(fragment.lower()))
    return Offer(fragment, tuple(dict.fromkeys(begun)))


def _behind(
    word: Word,
    tokens: Sequence[str],
    gpus: Callable[[], Sequence[str]],
    names: Callable[[], Iterable[str]],
    *,
    above: bool,
) -> list[str]:
    """Return what may follow a word and its tokens: the values of a flag, or values and the flags that are left."""
    if word.restart:
        return list(module(word).offers([word.name, *tokens], gpus))  # the word is a part of its policy
    flags, takes = (word.above.flags, word.above.rest) if above and word.above else (word.flags, word.takes)
    named = "|".join(re.escape(flag.name) for flag in flags if flag.takes == "NAMES")
    if named and re.search(rf"(?:^| )(?:{named})(?:[ =](?:\S*,)?)?$", " ".join(tokens)):
        return list(names())
    last = tokens[-1].rstrip("=") if tokens else ""
    for flag in flags:
        if flag.takes and flag.name == last:
            return list(flag.values)
    values: list[str] = []
    if takes == "WORDS":
        try:
            _, policy = arguments.parse(word.name, tokens, flags, takes, "")
        except PolicyError:
            return []
        values = parser.offers([" ".join(policy)], gpus)
    elif takes:
        values = module(word).offers(tokens, gpus)
    given = {token.partition("=")[0] for token in tokens}
    return [*values, *(flag.name for flag in flags if flag.name not in given)]


def in_context(line: str) -> dict[str, Any]:
    """Return the completions at the end of a `%tf_gpu` line; there, Python's names and files are suppressed."""
    offer = _offer(line)
    if offer is None:
        return {"completions": []}
    found = [completer.SimpleCompletion(text=word, type="magic") for word in offer.words]
    return {"completions": found or _Nothing(), "suppress": True, "matched_fragment": offer.fragment}


def of_text(line: str, text: str) -> list[str]:
    """Return the same before IPython 8.6, as in Colab: there a matcher cannot suppress the others.

    Args:
        line: the line up to the cursor.
        text: the part of it that IPython completes.
    """
    offer = _offer(line)
    if offer is None or not text.endswith(offer.fragment):
        return []
    start = text.removesuffix(offer.fragment)
    return [start + word for word in offer.words]


class _Nothing:
    """Completions of length one that give nothing: IPython ignores the suppression of a matcher that has none."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[object]:
        return iter(())


def _offer(line: str) -> Offer | None:
    return at(line, table.in_notebooks(), _labels, _names)


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
