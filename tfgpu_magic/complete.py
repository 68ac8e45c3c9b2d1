"""Tab completion of `%tf_gpu`: words, flags and this machine's GPU numbers, and nothing else."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from tfgpu_magic.config import grammar
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.monitor.look import look

FRESH = 30.0
"""Seconds for which the list of GPUs is good enough for completing a line."""

_VALUES = {"growth": ["off"], "visible": ["all", "none"], "split": ["2", "4"], "limit": ["2GiB", "25%", "50%"]}

_gpus: tuple[float, list[str]] = (-FRESH, [])


@context_matcher(identifier="tfgpu_magic")  # type: ignore[untyped-decorator,unused-ignore]  # IPython's
def matcher(context: CompletionContext) -> dict[str, Any]:
    """What may stand at the cursor of a `%tf_gpu` line; there, Python's names are no help, and are held back."""
    line = context.line_with_cursor[: context.cursor_position]
    said = re.match(r"\s*%?tf_gpu\s+(.*)", line)
    if said is None:
        return {"completions": []}
    typed = re.split(r"[;\s]*;\s*", said[1])[-1]
    fragment = re.split(r"[\s,=]", typed)[-1]
    offered = complete(typed.removesuffix(fragment))
    named = re.split(r"[\s,]", typed)
    matches = [word for word in offered if word.startswith(fragment) and word not in named[:-1]]
    return {
        "completions": [SimpleCompletion(text=match, type="magic") for match in matches],
        "suppress": True,
        "matched_fragment": fragment,
    }


def complete(before: str) -> list[str]:
    """What may come after the text of one policy so far."""
    tokens = before.replace(",", " ").split()
    names = [token for token in tokens if not token.startswith("-")]
    known: Sequence[grammar.Word] = grammar.WORDS
    if names and names[0] in ("plan", "code", "env"):
        known, names = grammar.POLICY_WORDS, names[1:]
    if not names:
        return [word.name for word in known]
    try:
        word = grammar.find(names[0], known)
    except PolicyError:
        return []
    if before.endswith("="):
        return _VALUES["limit"]
    return _after(word, tokens[-1])


def _after(word: grammar.Word, last: str) -> list[str]:
    """What may follow: the values of the flag before the cursor, else the word's own values and its flags."""
    if last == "--gpu":
        return _numbers()
    if dict(word.flags).get(last):
        return []
    values = list(_VALUES.get(word.name, ()))
    if word.name == "visible":
        values += _numbers()
    if word.name == "limit":
        values += [f"{number}=" for number in _numbers()]
    return values + [flag for flag, _ in word.flags] + [grammar.RESTART]


def _numbers() -> list[str]:
    """nvidia-smi's numbers of the GPUs, as of a moment ago."""
    global _gpus  # a cache of one
    if time.monotonic() - _gpus[0] > FRESH:
        _gpus = (time.monotonic(), [gpu.label for gpu in look(timeout=0.5).gpus if gpu.instance is None])
    return _gpus[1]
