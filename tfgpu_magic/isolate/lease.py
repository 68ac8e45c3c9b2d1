"""What a call demands of GPUs, and its lease: what it may have of them while it runs, as `leases` decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tfgpu_magic import control, idle_notebooks, other_processes
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import allocation, offer
from tfgpu_magic.monitor.snapshot import Snapshot
from tfgpu_magic.other_processes import OtherProcesses


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


@dataclass(slots=True, eq=False, kw_only=True)
class Demand:
    """What a call asks for.

    Attributes:
        policy: the call's policy, in addition to the policy of this process.
        gpus: how many GPUs; None is one, if there is one.
        wanted: returns whether the call still wants them.
        waiting: called when it has to wait.
        came: when it came, in seconds since the epoch.
        ticket: its number in the lease table.
        snapshot: the GPUs, as they were last seen for it; None before.
    """

    policy: Policy
    gpus: int | None
    wanted: Callable[[], bool]
    waiting: Callable[[], None]
    came: float = field(default_factory=time.time)
    ticket: int = 0
    snapshot: Snapshot | None = None

    def devices(self, here: Policy, snapshot: Snapshot) -> tuple[Device, ...] | None:
        """Return the GPUs to choose from under this process's policy `here`; None if there is no GPU to share out."""
        return offer.offered(here, self.policy, snapshot, self.gpus)

    def offers(self, snapshot: Snapshot) -> Iterator[tuple[Policy, tuple[Device, ...] | Refused | None]]:
        """Give this process's policy and its fallbacks, each with its `devices`, or why there can be none."""
        for here in offer.nearest_first(snapshot):
            try:
                yield here, self.devices(here, snapshot)
            except Refused as error:
                yield here, error

    def count(self, devices: tuple[Device, ...]) -> int:
        """Return how many of them it needs."""
        del devices
        return self.gpus or 1

    def settle(self, together: Policy, chosen: tuple[Device, ...]) -> Policy:
        """Return the policy of its process."""
        return allocation.settle(together, chosen)

    def refuse(self, error: Refused) -> None:
        """Raise the refusal of the demand, with the idle notebook whose parking would make it fit."""
        if error.crowded and self.snapshot is not None:
            idle_notebooks.name_one(error, self.snapshot, other_processes.now(), self._fits)
        raise error

    def _fits(self, then: Snapshot, _: OtherProcesses) -> bool:
        devices = self.devices(control.current().settled, then)
        return devices is None or allocation.choose(devices, offer.holding(then), (), self.count(devices)) is not None


class DemandForAll(Demand):
    """A demand for what a policy takes of every GPU; what applies the policy explains better what is in its way."""

    def devices(self, here: Policy, snapshot: Snapshot) -> tuple[Device, ...] | None:
        """Return the GPUs on which the policy takes a fixed amount; None if there are none."""
        return tuple(device for device in offer.seen(here, self.policy, snapshot) if device.limits) or None

    def count(self, devices: tuple[Device, ...]) -> int:
        """Return their number: it needs all of them."""
        return len(devices)

    def settle(self, together: Policy, chosen: tuple[Device, ...]) -> Policy:
        """Return the policy as it was written."""
        del chosen
        return together

    def refuse(self, error: Refused) -> None:
        """Ignore the refusal: applying the policy raises it."""
        del error
