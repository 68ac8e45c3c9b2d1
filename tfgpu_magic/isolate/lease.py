"""The lease of an isolated call: what it may have of the GPUs while it runs, as `leases` or its caller decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.monitor.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """What one call may have, while it runs.

    Attributes:
        policy: all that is asked of TensorFlow in its process.
        snapshot: the GPUs, as they were when its own were chosen; None if they were not looked at.
        devices: its own GPUs; none if there is no GPU to share out.
        environment: further environment variables for its process.
        started: to be called with its process's pid, once it has one.
    """

    policy: Policy
    snapshot: Snapshot | None = None
    devices: tuple[Device, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    started: Callable[[int], None] = lambda _: None


class Abandoned(Exception):
    """The lease that was waited for is no longer wanted."""
