"""TensorFlow's peak counters, one for each logical GPU; `frameworks.peaks` shares them among those who reset them.

TensorFlow's own functions go on to tell what they would without our resets: two methods of its context's class are
wrapped for that, as long as the process lives. Source: TensorFlow 2.16 to 2.21, `eager/context.py` and
`framework/config.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tfgpu_magic.config.runtime import stage


class _Methods(NamedTuple):
    """The methods of the context's class as they are without us."""

    get_memory_info: Callable[[Any, str], dict[str, int]]
    reset_memory_stats: Callable[[Any, str], None]


_wrapped: _Methods | None = None
"""What was wrapped; None while nothing is."""

_others: dict[str, int] = {}
"""The most that was counted before our resets, and since the last one of others, by logical GPU."""


def read(name: str) -> tuple[int, int, int]:
    """Return the bytes that a logical GPU's pool has in use, its peak as TensorFlow tells it, and since any reset."""
    figures = _methods().get_memory_info(stage.eager_context(), name)
    return figures["current"], max(figures["peak"], _others.get(name, 0)), figures["peak"]


def reset(name: str) -> None:
    """Reset a logical GPU's counter; TensorFlow's own functions tell the same of it as before."""
    _others[name] = read(name)[1]
    _methods().reset_memory_stats(stage.eager_context(), name)


def share(between: Callable[[Callable[[], None]], None]) -> None:
    """Have the resets of others done by a function, and keep from them that there are ours.

    TensorFlow is to be imported. It is not started.
    """
    global _wrapped  # a process has one such class
    context = stage.context_class()
    if context is None or _wrapped is not None:
        return
    theirs = _methods()

    def get_memory_info(self: Any, dev: str) -> dict[str, int]:
        figures = theirs.get_memory_info(self, dev)
        return figures | {"peak": max(figures["peak"], _others.get(_pool(dev), 0))}

    def reset_memory_stats(self: Any, dev: str) -> None:
        def reset_theirs() -> None:
            theirs.reset_memory_stats(self, dev)
            _others.pop(_pool(dev), None)

        between(reset_theirs)

    context.get_memory_info, context.reset_memory_stats = get_memory_info, reset_memory_stats
    _wrapped = theirs


def _methods() -> _Methods:
    if _wrapped is not None:
        return _wrapped
    context: Any = stage.context_class()
    return _Methods(context.get_memory_info, context.reset_memory_stats)


def _pool(device: str) -> str:
    """Return a logical GPU's name from any way to write it, as ``/device:GPU:0``."""
    number = re.search(r"GPU:(\d+)$", device)
    return f"GPU:{int(number[1])}" if number else "GPU:0"  # TensorFlow takes `GPU:*` where there is only one
