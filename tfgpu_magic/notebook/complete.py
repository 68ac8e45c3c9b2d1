"""Tab completion of `%tf_gpu` in IPython; `notebook.words.completions` decides what is offered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from IPython.core import completer
from IPython.core.interactiveshell import InteractiveShell

from tfgpu_magic.monitor.driver.look import look
from tfgpu_magic.notebook.words import completions, table

if TYPE_CHECKING:
    from tfgpu_magic.notebook.words.completions import Offer

FRESH = 30.0
"""Seconds for which the list of GPUs is recent enough for completing a line."""
LOOK_TIMEOUT = 0.5
"""Seconds that Tab waits for the GPUs; without them it offers all but their numbers."""

_gpus: tuple[float, list[str]] = (-FRESH, [])


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
    return completions.at(line, table.WORDS, _labels, _names)


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
