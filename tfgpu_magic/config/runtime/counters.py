"""TensorFlow's peak counters, one for each logical GPU; `frameworks.peaks` shares them among those who reset them.

TensorFlow's own functions go on to tell what they would without our resets: two methods of its context are wrapped for
that, as long as the process lives. Source: TensorFlow 2.16 to 2.21, `eager/context.py` and `framework/config.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tfgpu_magic.config.runtime import stage


class _Theirs(NamedTuple):
    """The methods of TensorFlow's context as they are without us, and that context."""

    context: Any
    get_memory_info: Any
    reset_memory_stats: Any


_wrapped: _Theirs | None = None

_others: dict[str, int] = {}
"""The most that was counted before our resets, and since the last one of others, by logical GPU."""


def read(name: str) -> tuple[int, int]:
    """Return the bytes that a logical GPU's pool has in use, and its peak since the last reset by anybody."""
    figures = _theirs().get_memory_info(name)
    return figures["current"], figures["peak"]


def reset(name: str) -> None:
    """Reset a logical GPU's counter; TensorFlow's own functions tell the same of it as before."""
    _others[name] = max(read(name)[1], _others.get(name, 0))
    _theirs().reset_memory_stats(name)


def share(between: Callable[[Callable[[], None]], None]) -> None:
    """Have the resets of others done by a function, and keep from them that there are ours.

    TensorFlow is to be imported. It is not started.
    """
    global _wrapped  # a process has one context
    context = stage.eager_context()
    if context is None or (_wrapped is not None and _wrapped.context is context):
        return
    theirs = _Theirs(context, context.get_memory_info, context.reset_memory_stats)

    def get_memory_info(dev: str) -> Any:
        figures = theirs.get_memory_info(dev)
        return figures | {"peak": max(figures["peak"], _others.get(_pool(dev), 0))}

    def reset_memory_stats(dev: str) -> None:
        def reset_theirs() -> None:
            theirs.reset_memory_stats(dev)
            _others.pop(_pool(dev), None)

        between(reset_theirs)

    context.get_memory_info, context.reset_memory_stats = get_memory_info, reset_memory_stats
    _wrapped = theirs


def _theirs() -> _Theirs:
    context = stage.eager_context()
    if _wrapped is not None and _wrapped.context is context:
        return _wrapped
    assert context is not None  # noqa: S101  # no caller asks before TensorFlow is ready
    return _Theirs(context, context.get_memory_info, context.reset_memory_stats)


def _pool(device: str) -> str:
    """Return a logical GPU's name from any way to write it: ``/device:GPU:0``, ``gpu:0``."""
    number = re.search(r"GPU:(\d+)$", device, re.IGNORECASE)
    return f"GPU:{int(number[1])}" if number else "GPU:0"  # TensorFlow takes `GPU:*` where there is only one
