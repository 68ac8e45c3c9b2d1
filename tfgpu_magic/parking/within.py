"""Parks this kernel because another process of its user's asks for it, with a silent request between two cells."""

from __future__ import annotations

import time
from typing import Any

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.host import shell
from tfgpu_magic.parking import client
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.messages import Outcome
from tfgpu_magic.publisher import notebook_of, parks


def park(deadline: float) -> str:
    """Park this kernel, and return what came of it as `Outcome.to_line` writes it.

    A request waits behind the cells that run; one that comes too late parks nothing, since who asked has gone.

    Args:
        deadline: when it is too late, in seconds since the epoch.
    """
    return _park(shell(), late=time.time() > deadline).to_line().decode()


def _park(here: Any, *, late: bool) -> Outcome:
    if not parks(here):
        return Outcome(refusals=(why.SwitchedOff(),))
    if late:
        return Outcome(refusals=(why.Busy(),))
    try:
        return client.park(inside=inside(), name=notebook_of(here))
    except MonitorError as error:
        return Outcome(refusals=(why.Unrecorded(str(error)),))


def inside() -> Inside:
    """Return what this process says of itself; between two cells none runs."""
    return Inside()
