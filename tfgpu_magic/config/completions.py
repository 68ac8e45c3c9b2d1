"""What may stand next in the text of a policy, from its words alone; `words.completions` uses it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgpu_magic.config import requests
from tfgpu_magic.config.arguments import SIZES

_FLAG_VALUES = {"--need": SIZES}


def policy(typed: Sequence[str], gpus: Callable[[], Sequence[str]], *more: str) -> list[str]:
    """Return what may follow in a policy.

    Args:
        typed: its tokens so far.
        gpus: returns the labels of the GPUs that can be named.
        more: what may follow a request besides its own values and flags.
    """
    request = " ".join(typed).rpartition(";")[2]
    tokens = request.replace(",", " ").lower().split()
    if not tokens:
        return [row.WORD.name for row in requests.REQUESTS]
    row = next((row for row in requests.REQUESTS if row.WORD.name == tokens[0]), None)
    if row is None:
        return []
    flags, last = dict(row.WORD.flags), tokens[-1].rstrip("=")
    if flags.get(last):
        return list(_FLAG_VALUES.get(last) or gpus())
    if request.endswith("="):
        return list(SIZES)
    offered = [*row.offers(tokens[1:], gpus), *flags, *more]
    return [word for word in offered if word.lower() not in tokens]
