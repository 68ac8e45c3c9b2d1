"""What may stand next in the text of a policy, from its words alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgpu_magic.config.grammar import POLICY_WORDS
from tfgpu_magic.config.word import Word

_SIZES = ("2GiB", "4GiB", "25%", "50%")
_VALUES = {"growth": ("on", "off"), "visible": ("all", "none"), "split": ("2", "4"), "limit": _SIZES}
_FLAG_VALUES = {"--need": _SIZES}


def policy(said: Sequence[str], gpus: Callable[[], Sequence[str]], *more: str) -> list[str]:
    """What may follow in a policy, and more of it at the end of a request.

    Args:
        said: its tokens so far.
        gpus: gives the labels of the GPUs that can be named.
        more: what may stand behind a request besides its own values and flags.
    """
    request = " ".join(said).rpartition(";")[2]
    tokens = request.replace(",", " ").lower().split()
    if not tokens:
        return [word.name for word in POLICY_WORDS]
    word = next((word for word in POLICY_WORDS if word.name == tokens[0]), None)
    if word is None:
        return []
    flags, last = dict(word.flags), tokens[-1].rstrip("=")
    if flags.get(last):
        return list(_FLAG_VALUES.get(last) or gpus())
    if request.endswith("="):
        return list(_SIZES)
    offered = [*_values(word, tokens[1:], gpus), *flags, *more]
    return [word for word in offered if word.lower() not in tokens]


def _values(word: Word, said: Sequence[str], gpus: Callable[[], Sequence[str]]) -> list[str]:
    """The values of a word that may stand beside those that are said."""
    if word.offers is not None:
        return word.offers(said, gpus)
    values = [token for token in said if not token.startswith("--")]
    sized = any("=" not in value for value in values)
    if word.name == "limit":
        named = [f"{gpu}=" for gpu in gpus() if not any(value.startswith(f"{gpu}=") for value in values)]
        return named + ([] if sized else list(_SIZES))
    if word.name == "visible" and values:
        return [] if values[0] in _VALUES["visible"] else list(gpus())
    offered = [] if values else list(_VALUES.get(word.name, ()))
    return offered + (list(gpus()) if word.name == "visible" else [])
