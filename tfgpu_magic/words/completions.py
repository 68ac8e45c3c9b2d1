"""What may stand at the cursor of a line of ours, from the words alone. Pure; `complete` gives it to IPython."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tfgpu_magic.config.word import Word
from tfgpu_magic.words.line import parted

_LINE = re.compile(r"\s*(?P<percent>%{0,2})tf_gpu(?P<rest>\s+(?![=.(\[]).*|\s+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Offer:
    """What may stand at the cursor.

    Attributes:
        fragment: what of it is typed already.
        words: what it may become; empty where nothing may stand there.
    """

    fragment: str
    words: tuple[str, ...]


def at(
    line: str,
    words: Sequence[Word],
    gpus: Callable[[], Sequence[str]],
    names: Callable[[], Iterable[str]],
) -> Offer | None:
    """Say what may stand at the end of a line; None where it is no line of ours.

    Args:
        line: the line up to the cursor.
        words: all that there are.
        gpus: gives the labels of the GPUs that can be named.
        names: gives the notebook's names.
    """
    ours = _LINE.fullmatch(line)
    if ours is None:
        return None
    fragment = re.split(r"[\s,;=]", ours["rest"])[-1]
    name, rest = parted(ours["rest"].removesuffix(fragment).lstrip())
    fitting = [word for word in words if (word.above if ours["percent"] == "%%" else word.answer)]
    said = next((word for word in fitting if name and name.lower() in word.names), None)
    if said is None:
        offered = [] if name or rest else [word.name for word in fitting]
    elif ours["percent"] == "%%" and said.above is not None:
        offered = said.above.offers(rest.split(), gpus, names)
    else:
        offered = _in_a_line(said, rest.split(), gpus)
    begun = (word for word in offered if word.lower().startswith(fragment.lower()))
    return Offer(fragment, tuple(dict.fromkeys(begun)))


def _in_a_line(word: Word, said: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
    """What may stand behind a word in a line: its values, and those of its flags that are not said."""
    values = [] if word.offers is None else word.offers(said, gpus)
    flags = dict(word.flags)
    waits = bool(said) and flags.get(said[-1].rstrip("="), False)  # for a flag's value
    return values if waits else values + [flag for flag in flags if flag not in said]
