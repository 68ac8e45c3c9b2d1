"""`%tf_gpu park` and `unpark`: they refuse whatever follows them until parking is rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfgpu_magic.errors import Refused
from tfgpu_magic.policy.word import Line

_REBUILT = {
    "park": "Parking is being rebuilt, so nothing was parked and nothing was changed. Shutting a notebook's kernel "
    "down gives all of its GPU memory back; `%%tf_gpu isolate` does so for one cell, when it ends.",
    "unpark": "Parking is being rebuilt, so nothing is parked and nothing was changed.",
}
"""Why each word is refused, and what to do instead."""


def answer(line: Line) -> None:
    """Refuse the line, in each of its forms."""
    raise Refused(_REBUILT[line.word.name], verdict="")


def offers(_: Sequence[str], __: Callable[[], Sequence[str]]) -> list[str]:
    """Return nothing."""
    return []
