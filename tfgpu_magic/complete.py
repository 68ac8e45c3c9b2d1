"""Tab completion of `%tf_gpu` in IPython: words, flags, this machine's GPUs, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from IPython.core.interactiveshell import InteractiveShell

from tfgpu_magic.config import completions
from tfgpu_magic.monitor.look import look

FRESH = 30.0
"""Seconds for which the list of GPUs is good enough for completing a line."""

_gpus: tuple[float, list[str]] = (-FRESH, [])


@context_matcher(identifier="tfgpu_magic")  # type: ignore[untyped-decorator,unused-ignore]  # IPython's
def matcher(context: CompletionContext) -> dict[str, Any]:
    """What may stand at the cursor of a line of ours; there, Python's names and files are held back."""
    offer = completions.at(context.line_with_cursor[: context.cursor_position], _labels, _names)
    if offer is None:
        return {"completions": []}
    found = [SimpleCompletion(text=word, type="magic") for word in offer.words]
    return {"completions": found or _Nothing(), "suppress": True, "matched_fragment": offer.fragment}


class _Nothing:
    """Completions that are none, and count as some: IPython lets nobody hold others back who has none to give."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[SimpleCompletion]:
        return iter(())


def _labels() -> list[str]:
    """What the GPUs that can be named are called, as of a moment ago."""
    global _gpus  # a cache of one
    if time.monotonic() - _gpus[0] > FRESH:
        _gpus = (time.monotonic(), [gpu.label for gpu in look(timeout=0.5).gpus if not gpu.mig])
    return _gpus[1]


def _names() -> list[str]:
    """The notebook's own names."""
    shell = InteractiveShell.instance()
    return [name for name in shell.user_ns if name not in shell.user_ns_hidden and not name.startswith("_")]
