"""Tab completion of `%tf_gpu`: words, flags and this machine's GPU numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tfgpu_magic.config import grammar
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.monitor.look import look

FRESH = 30.0
"""Seconds for which the list of GPUs is good enough for completing a line."""

_VALUES = {"growth": ["off"], "visible": ["all", "none"], "split": ["2", "4"], "limit": ["25%", "50%"]}

_gpus: tuple[float, list[str]] = (-FRESH, [])


def complete(_: Any, event: Any) -> list[str]:
    """What may stand at the cursor: a hook for IPython's ``complete_command``.

    Args:
        event: has `line`, the whole line; and `symbol`, what of the word at the cursor is there.
    """
    typed = event.line.removeprefix("%").split()[1:]
    before = typed if not event.symbol and not event.line.endswith((",", "=")) else typed[:-1]
    names = [token for token in before if not token.startswith("-")]
    known: Sequence[grammar.Word] = grammar.WORDS
    if names and names[0] in ("plan", "code", "env"):
        known, names = grammar.POLICY_WORDS, names[1:]
    if not names:
        return [word.name for word in known]
    try:
        word = grammar.find(names[0], known)
    except PolicyError:
        return []
    return _after(word, before[-1])


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
