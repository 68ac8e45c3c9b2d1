"""What of this process's own holds GPU memory, and what was in use before; nothing where that is not known."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from typing import Any

from tfgpu_magic.insight.why.explanation import Held

MOST = 5
"""How many of the largest are named."""

MINUTES = 10
"""How much of what was in use before is shown."""


def biggest() -> tuple[Held, ...]:
    """Return what of the user's holds most memory, the largest first. It raises nothing."""
    with contextlib.suppress(Exception):  # the user's own error is what must be seen
        tensors: Any = importlib.import_module("tfgpu_magic.insight.tensors")
        return tuple(map(_held, tensors.holders(MOST)))
    return ()


def past(gpu: str | None) -> tuple[tuple[float, int], ...]:
    """Return what was in use of a GPU in the last minutes: seconds since the epoch, and bytes. It raises nothing.

    Args:
        gpu: its UUID.
    """
    with contextlib.suppress(Exception):  # as above
        timeline: Any = sys.modules["tfgpu_magic.insight.timeline"]  # imported by whatever adds to it
        samples = timeline.TIMELINE.samples(60.0 * MINUTES)
        return tuple((one.time, level.in_use) for one in samples for level in one.levels if level.gpu == gpu)
    return ()


def frees() -> bool:
    """Tell whether `%tf_gpu free` is there."""
    with contextlib.suppress(ImportError):
        return importlib.util.find_spec("tfgpu_magic.words.free") is not None
    return False


def _held(holding: Any) -> Held:
    name = holding.name
    kinds = {scope.kind for scope in name.scopes}
    kept = bool(kinds & {"error", "result"}) or name.expression.startswith(("Out[", "_"))
    return Held(
        name=name.expression,
        what=holding.what,
        size=holding.size,
        device=holding.device,
        kept=kept,
    )
