"""Applies what waits as soon as TensorFlow is imported, in whatever way it is, and never breaks that import."""

from __future__ import annotations

import sys
from types import ModuleType

import wrapt

from tfgpu_magic.config.runtime import RUNTIME

_held = False


def hold() -> None:
    """Have the plan of `RUNTIME` told to TensorFlow at its import. Once is enough for any number of plans."""
    global _held  # wrapt has no way to take a hook back, so it must be set only once
    if not _held:
        wrapt.when_imported("tensorflow")(_tell)
        _held = True


def _tell(_: ModuleType) -> None:
    plan = RUNTIME.plan
    if plan is None or not plan.needs_tensorflow:
        return
    try:
        RUNTIME.tell(plan)
    except Exception as error:  # whatever it is, the user's import must go on
        RUNTIME.plan = None
        print(f"tfgpu_magic: `{plan.asked}` is NOT in force: {error}", file=sys.stderr)
    else:
        print(f"tfgpu_magic: `{plan.asked}` is in force.")
