"""Orders for calls: the process of a call is set up as this one is, with the policy that is asked for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tfgpu_magic import control
from tfgpu_magic.config import visible
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.runtime import RUNTIME
from tfgpu_magic.isolate.process import precision, station
from tfgpu_magic.isolate.process.order import Order
from tfgpu_magic.isolate.values.guard import ROOTS
from tfgpu_magic.monitor.snapshot import Snapshot


def order(
    policy: Policy,
    snapshot: Snapshot | None,
    *,
    runner: str,
    hidden: bool = False,
    imported: frozenset[str] | None = None,
    **more: Any,
) -> Order:
    """The order for a process that is as this one is, but for its policy.

    Args:
        policy: all that is asked of TensorFlow there.
        snapshot: the GPUs, as they were when the policy was chosen; None to look there, if the policy needs it.
        runner: as in `Order`.
        hidden: no GPU is seen there, whoever looks.
        imported: as in `Order`; None where this process is the caller.
        more: as in `Order`.
    """
    return Order(
        runner=runner,
        environment=RUNTIME.bequest() | (visible.variable(()) if hidden else {}),
        directory=str(Path.cwd()),
        path=tuple(sys.path),
        arguments=tuple(sys.argv),
        station=station.here(),
        apply=control.apply,
        policy=policy,
        imported=ROOTS & sys.modules.keys() if imported is None else imported,
        snapshot=snapshot,
        precision=precision.read(),
        **more,
    )
