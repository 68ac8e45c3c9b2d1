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
from tfgpu_magic.notebook.words import table
from tfgpu_magic.notebook.words.line import module, parted
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.arguments import separate
from tfgpu_magic.policy.word import Above, Word

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
        words: the words that it may become; empty where nothing may stand there.
    """

    fragment: str
    words: tuple[str, ...]


def at(
    line: str,
    words: Sequence[Word],
    gpus: Callable[[], Sequence[str]],
    names: Callable[[], Iterable[str]],
) -> Offer | None:
    """Return what may stand at the end of a line; None where it is no line of `%tf_gpu`.

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
    elif above:
        offered = _above(first.above, rest.split(), gpus, names) if first.above else []
    else:
        offered = _in_a_line(first, rest.split(), gpus)
    begun = (word for word in offered if word.lower().startswith(fragment.lower()))
    return Offer(fragment, tuple(dict.fromkeys(begun)))


def _above(
    above: Above, tokens: Sequence[str], gpus: Callable[[], Sequence[str]], names: Callable[[], Iterable[str]]
) -> list[str]:
    """Return what may follow above a cell: names, the values of a flag, or words of a policy and flags."""
    named = "|".join(re.escape(flag.name) for flag in above.flags if flag.takes == "NAMES")
    if named and re.search(rf"(?:^| )(?:{named})(?:[ =](?:\S*,)?)?$", " ".join(tokens)):
        return list(names())
    last = tokens[-1].rstrip("=") if tokens else ""
    if values := [value for flag in above.flags if flag.takes and flag.name == last for value in flag.values]:
        return values
    left = [flag.name for flag in above.flags if flag.name not in tokens]
    if above.rest != "WORDS":
        return left
    try:
        policy, given = separate(tokens, {flag.name: flag.takes for flag in above.flags}, "")
    except PolicyError:
        return []
    # The words of a policy may be written as flags here.
    begun = re.sub(rf"(?:^| )--({'|'.join(word.name for word in parser.POLICY_WORDS)})\b", r";\1", " ".join(policy))
    return parser.offers([begun.lstrip(";")], gpus) + [flag for flag in left if flag not in given]


def _in_a_line(word: Word, tokens: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
    """Return what may follow a word and its tokens in a line: its values, and its flags that are not there yet."""
    behind = [word.name, *tokens] if word.restart else tokens  # a policy's word is a part of it
    values: list[str] = module(word).offers(behind, gpus) if word.takes else []
    flags = dict(word.flags)
    needs_value = bool(tokens) and flags.get(tokens[-1].rstrip("="), False)
    return values if needs_value else values + [flag for flag in flags if flag not in tokens]


def in_context(line: str) -> dict[str, Any]:
    """Return the completions at the end of a `%tf_gpu` line; there, Python's names and files are suppressed."""
    offer = _offer(line)
    if offer is None:
        return {"completions": []}
    found = [completer.SimpleCompletion(text=word, type="magic") for word in offer.words]
    return {"completions": found or _Nothing(), "suppress": True, "matched_fragment": offer.fragment}


def of_text(line: str, text: str) -> list[str]:
    """Return the same before IPython 8.6, as in Colab, where a matcher cannot suppress the others.

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
    return at(line, table.WORDS, _labels, _names)


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
