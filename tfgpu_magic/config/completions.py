"""What may stand at the cursor of a line of ours, from the grammar alone. Pure; `complete` gives it to IPython."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tfgpu_magic.config import grammar

_LINE = re.compile(r"\s*(?P<percent>%{0,2})tf_gpu(?P<rest>\s+(?![=.(\[]).*|\s+)", re.DOTALL)
_NAMES = re.compile(r"(?:^|\s)-[io](?:\s+|=)(?:\w+,)*$")
"""The end of a line whose next word is a name of the notebook."""

_SIZES = ("2GiB", "4GiB", "25%", "50%")
_VALUES = {"growth": ("on", "off"), "visible": ("all", "none"), "split": ("2", "4"), "limit": _SIZES}
_FLAG_VALUES = {"--need": _SIZES, "--gpus": ("1", "2"), "--timeout": ("90s", "10m", "2h")}
_TELLING = ("plan", "code", "env")
"""Words that other words follow, and that set nothing."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What may stand at the cursor.

    Attributes:
        fragment: what of it is typed already.
        words: what it may become; empty where nothing may stand there.
    """

    fragment: str
    words: tuple[str, ...]


def at(line: str, gpus: Callable[[], Sequence[str]], names: Callable[[], Iterable[str]]) -> Offer | None:
    """Say what may stand at the end of a line; None where it is no line of ours.

    Args:
        line: the line up to the cursor.
        gpus: gives the labels of the GPUs that can be named.
        names: gives the notebook's names.
    """
    ours = _LINE.fullmatch(line)
    if ours is None:
        return None
    said = ours["rest"]
    fragment = re.split(r"[\s,;=]", said)[-1]
    before = said.removesuffix(fragment).lstrip()
    words = _above_a_cell(before, gpus, names) if ours["percent"] == "%%" else _in_a_line(before, gpus)
    fitting = (word for word in words if word.lower().startswith(fragment.lower()))
    return Offer(fragment, tuple(dict.fromkeys(fitting)))


def _in_a_line(before: str, gpus: Callable[[], Sequence[str]]) -> list[str]:
    first, _, rest = before.partition(" ")
    first = first.lower()
    if before.count(";") == 0 and not first:
        return [word.name for word in grammar.WORDS]
    if first in _TELLING:
        return _policy(rest.lstrip(), gpus)
    if first in (word.name for word in grammar.OTHER_WORDS):
        alone = {"isolate": ["--warm"], "jobs": ["stop"]}.get(first, [])
        return [] if rest.strip() else alone
    return _policy(before, gpus, grammar.RESTART)


def _above_a_cell(before: str, gpus: Callable[[], Sequence[str]], names: Callable[[], Iterable[str]]) -> list[str]:
    first, _, rest = before.partition(" ")
    if not first:
        return [grammar.ISOLATE]
    if first.lower() != grammar.ISOLATE:
        return []
    if _NAMES.search(rest):
        return list(names())
    tokens = rest.split()
    takes = {flag: takes for flag, takes, _ in grammar.ISOLATE_FLAGS}
    if tokens and takes.get(tokens[-1].rstrip("=")):
        return list(_FLAG_VALUES.get(tokens[-1].rstrip("="), ()))
    flags = [flag for flag in takes if flag not in (token.partition("=")[0] for token in tokens)]
    # What is left without its flags is a policy, whose words may be flags.
    policy = re.sub(r"(?:^|\s)(?:--detach|(?:-[io]|--gpus|--timeout)[\s=]\s*\S+)(?=\s)", "", rest).lstrip()
    policy = re.sub(rf"(?:^|\s)--({'|'.join(word.name for word in grammar.POLICY_WORDS)})\b", r";\1", policy)
    return _policy(policy.lstrip(";"), gpus) + flags


def _policy(before: str, gpus: Callable[[], Sequence[str]], *more: str) -> list[str]:
    """What may follow in a policy, and more of it at the end of a request."""
    request = before.rpartition(";")[2]
    tokens = request.replace(",", " ").lower().split()
    if not tokens:
        return [word.name for word in grammar.POLICY_WORDS]
    word = next((word for word in grammar.POLICY_WORDS if word.name == tokens[0]), None)
    if word is None:
        return []
    flags, last = dict(word.flags), tokens[-1].rstrip("=")
    if flags.get(last):
        return list(_FLAG_VALUES.get(last) or gpus())
    if request.endswith("="):
        return list(_SIZES)
    offered = [*_values(word.name, tokens[1:], gpus), *flags, *more]
    return [word for word in offered if word.lower() not in tokens]


def _values(word: str, said: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
    """The values of a word that may stand beside those that are said."""
    values = [token for token in said if not token.startswith("--")]
    sized = any("=" not in value for value in values)
    if word == "limit":
        named = [f"{gpu}=" for gpu in gpus() if not any(value.startswith(f"{gpu}=") for value in values)]
        return named + ([] if sized else list(_SIZES))
    if word == "visible" and values:
        return [] if values[0] in _VALUES["visible"] else list(gpus())
    offered = [] if values else list(_VALUES.get(word, ()))
    return offered + (list(gpus()) if word == "visible" else [])
