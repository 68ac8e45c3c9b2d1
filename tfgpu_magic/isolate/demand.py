"""What a call wants of GPUs, and the ways in which it may have it: as it was said, or as what stands here falls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import allocation, offer
from tfgpu_magic.monitor.snapshot import Snapshot


@dataclass(slots=True, eq=False, kw_only=True)
class Demand:
    """What a call asks for.

    Attributes:
        policy: what is asked beyond what holds in this process.
        gpus: how many GPUs; None is one, where there is one.
        wanted: whether there is still need for it.
        waiting: called where it has to wait.
        came: when it came, in seconds since the epoch.
        ticket: its number in the table.
        snapshot: the GPUs, as they were seen for it last; None before.
    """

    policy: Policy
    gpus: int | None
    wanted: Callable[[], bool]
    waiting: Callable[[], None]
    came: float = field(default_factory=time.time)
    ticket: int = 0
    snapshot: Snapshot | None = None

    def devices(self, here: Policy, snapshot: Snapshot) -> tuple[Device, ...] | None:
        """The GPUs to choose from, with what holds in this process; None where there is no GPU to be shared out."""
        return offer.offered(here, self.policy, snapshot, self.gpus)

    def count(self, devices: tuple[Device, ...]) -> int:
        """How many of them it needs."""
        del devices
        return self.gpus or 1

    def settle(self, together: Policy, chosen: tuple[Device, ...]) -> Policy:
        """The policy of its process."""
        return allocation.settle(together, chosen)

    def refuse(self, error: Refused) -> None:
        """Know that it cannot be had."""
        raise error


class DemandForAll(Demand):
    """A demand for what a policy takes of every GPU; who applies the policy says better than we what is in its way."""

    def devices(self, here: Policy, snapshot: Snapshot) -> tuple[Device, ...] | None:
        """Those that the policy takes so much of; None where there are none."""
        return tuple(device for device in offer.seen(here, self.policy, snapshot) if device.limits) or None

    def count(self, devices: tuple[Device, ...]) -> int:
        """All of them."""
        return len(devices)

    def settle(self, together: Policy, chosen: tuple[Device, ...]) -> Policy:
        """The policy as it was said."""
        del chosen
        return together

    def refuse(self, error: Refused) -> None:
        """Leave it to whoever applies the policy."""
        del error


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way in which a demand may be met.

    Attributes:
        here: what holds in this process, or what is nearest to it.
        devices: the GPUs to choose from; None where there is no GPU to be shared out; or why there can be none.
    """

    here: Policy
    devices: tuple[Device, ...] | Refused | None


def alternatives(demand: Demand, snapshot: Snapshot) -> Iterator[Alternative]:
    """Give the ways in which a demand may be met, the best first; asking CUDA for them may take a while."""
    for here in offer.nearest_first(snapshot):
        try:
            yield Alternative(here, demand.devices(here, snapshot))
        except Refused as error:
            yield Alternative(here, error)
