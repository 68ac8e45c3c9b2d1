"""Applies what waits as soon as TensorFlow is imported, in whatever way it is, and never breaks that import."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TextIO

import wrapt

from tfgpu_magic.config.plan import Plan
from tfgpu_magic.config.runtime import RUNTIME

_held = False


def hold(renewed: Callable[[], Plan]) -> None:
    """Have the plan of `RUNTIME` told to TensorFlow at its import. Once is enough for any number of plans.

    Args:
        renewed: gives that plan as things are then, with a note if it does not fit any more.
    """
    global _held  # wrapt has no way to take a hook back, so it must be set only once
    if not _held:
        wrapt.when_imported("tensorflow")(lambda _: _tell(renewed))
        _held = True


def _tell(renewed: Callable[[], Plan]) -> None:
    plan = RUNTIME.plan
    if plan is None or not plan.needs_tensorflow:
        return
    try:
        RUNTIME.tell(plan)
    except Exception as error:  # whatever it is, the user's import must go on
        RUNTIME.withdraw()
        _say(f"tfgpu_magic: `{plan.asked}` is NOT in force: {error or type(error).__name__}", sys.stderr)
    else:
        news = [note for note in renewed().notes if note not in plan.notes]
        ipython = sys.modules.get("IPython")
        if ipython is not None and ipython.get_ipython() is not None:  # below a cell it is an answer
            _say("\n".join([f"tfgpu_magic: `{plan.asked}` is in force.", *news]), sys.stdout)
        elif news:  # a program's output is the program's
            _say("\n".join(news), sys.stderr)


def _say(text: str, stream: TextIO | None) -> None:
    with contextlib.suppress(OSError, ValueError):  # the stream may be closed
        print(text, file=stream)
