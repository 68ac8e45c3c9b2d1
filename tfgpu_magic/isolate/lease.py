"""What one isolated call may have of the GPUs while it runs; which that is, the ledger or its caller decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.monitor.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """What one call may have, while it runs.

    Attributes:
        policy: all that is asked of TensorFlow in its process.
        snapshot: the GPUs, as they were when its own were chosen; None where nobody looked.
        devices: its own GPUs; none where there is no GPU to be shared out.
        environment: variables that its process has besides.
        started: is to be told its process, once it has one.
    """

    policy: Policy
    snapshot: Snapshot | None = None
    devices: tuple[Device, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    started: Callable[[int], None] = lambda _: None

    def take(self, call: Call) -> None:
        """Be the lease of a call, whose process is told to whoever gave it."""
        call.started = self.started


class Abandoned(Exception):
    """Nobody wants the lease any more that was waited for."""
