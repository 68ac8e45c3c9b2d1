"""Looks at a simulated machine that may not take long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.slack import SLACK
from tfgpu_magic.monitor.look import look

if TYPE_CHECKING:
    from tfgpu_magic.monitor.snapshot import Snapshot


def timed_look(timeout: float = 1.5) -> Snapshot:
    """Look, and return what was seen; it must come about when the timeout says."""
    start = time.monotonic()
    snapshot = look(timeout)
    assert time.monotonic() - start < 2 * SLACK
    return snapshot
