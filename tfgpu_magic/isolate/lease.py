"""What is on offer to a call of the GPUs, what it demands, and its lease: what it may have of them while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tfgpu_magic import control, idle_notebooks, other_processes
from tfgpu_magic.config import fallback
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.process_state import DEVICES
from tfgpu_magic.config.resolver import is_skipped, resolve
from tfgpu_magic.errors import NOT_STARTED, Refused
from tfgpu_magic.isolate import allocation
from tfgpu_magic.isolate.allocation import Holding
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.pids import elsewhere
from tfgpu_magic.monitor.snapshot import Snapshot
from tfgpu_magic.other_processes import OtherProcesses

T = TypeVar("T")

_SECOND_TIMEOUT = 10.0  # seconds for a driver that did not answer at once: it may have to be started first


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
        return offered(here, self.policy, snapshot, self.gpus)

    def offers(self, snapshot: Snapshot) -> Iterator[tuple[Policy, tuple[Device, ...] | Refused | None]]:
        """Give this process's policy and its fallbacks, each with its `devices`, or why there can be none."""
        for here in nearest_first(snapshot):
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
        return devices is None or allocation.choose(devices, holding(then), (), self.count(devices)) is not None


class DemandForAll(Demand):
    """A demand for what a policy takes of every GPU; what applies the policy explains better what is in its way."""

    def devices(self, here: Policy, snapshot: Snapshot) -> tuple[Device, ...] | None:
        """Return the GPUs on which the policy takes a fixed amount; None if there are none."""
        return tuple(device for device in seen(here, self.policy, snapshot) if device.limits) or None

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


def nearest_first(snapshot: Snapshot) -> Iterator[Policy]:
    """Give this process's policy for a call; while it is not judged yet, also its fallbacks, the nearest first.

    A call that cannot have one of them tries the next: it is never refused because of this process's own policy.
    """
    yield control.current().settled
    if not control.current().judged:
        fallen = control.inherited(snapshot)
        yield fallen
        yield fallen.then(fallback.GROWS)


def first(attempts: Iterable[Callable[[], T]]) -> T:
    """Return the result of the first attempt that is not refused.

    Raises:
        Refused: all are; the error is the first one's, which is about the policy as it was written.
    """
    refused: Refused | None = None
    for attempt in attempts:
        try:
            return attempt()
        except Refused as error:
            refused = refused or error
    assert refused is not None  # noqa: S101  # there is a first one
    raise refused


def candidates(here: Policy, policy: Policy, snapshot: Snapshot) -> tuple[Device, ...]:
    """Return the GPUs that a process which starts from here may use, and what a call is to take of each.

    Args:
        here: the policy of this process.
        policy: the call's own policy, in addition to it.
        snapshot: the machine's GPUs now.

    Raises:
        Refused: the policy names a GPU that is not there, or is hidden.
    """
    fallen = here != control.current().settled

    def may_be_less(device: Device) -> bool:
        """Tell whether a call may have less of a GPU, on which neither it nor this process insists."""
        words = device.words
        return device.capped or (fallen and words in here.requests and words not in policy.requests)

    devices = (allocation.asked(device) for device in seen(here, policy, snapshot))
    return tuple(allocation.lowered(device) if may_be_less(device) else device for device in devices)


def seen(here: Policy, policy: Policy, snapshot: Snapshot) -> Iterator[Device]:
    """Give the same GPUs with what a process takes that applies the policy as written: a percentage is of its pool.

    Raises:
        Refused: as `candidates` does.
    """
    kernel = control.anew(snapshot)
    if any(request.divided for request in here.then(policy).memory):
        others = other_processes.now()
        shared = tuple(lease for lease in others.leases if lease.size is not None)  # for another, a call waits its turn
        kernel = replace(others, leases=shared).added_to(kernel, snapshot)
    demand = resolve(here, policy, snapshot, kernel)
    if demand.choice is None and DEVICES not in kernel.outside and any(gpu.mig for gpu in snapshot.gpus):
        demand.seen = [gpu for gpu in snapshot.gpus if not gpu.mig]  # CUDA shows a process one instance: any, if named
    return iter([device for device in demand.devices() if not is_skipped(device.gpu, demand.seen, kernel)])


def offered(here: Policy, policy: Policy, snapshot: Snapshot, gpus: int | None) -> tuple[Device, ...] | None:
    """Return the GPUs to choose from; None if there are none and no number of them is asked for."""
    devices = candidates(here, policy, snapshot)
    if not devices and gpus is not None and snapshot.error:
        raise Refused(f"{allocation.gpus(gpus)} for each call cannot be had. {snapshot.error}", verdict=NOT_STARTED)
    return devices if devices or gpus is not None else None


def see() -> Snapshot:
    """Look at the GPUs; give a driver that does not answer a second, longer time.

    Raises:
        Refused: it does not answer. That there is no GPU is an answer.
    """
    snapshot = look()
    if snapshot.error and not snapshot.absent:
        snapshot = look(_SECOND_TIMEOUT)
    if snapshot.error and not snapshot.absent:
        raise Refused(
            f"The driver did not report which GPUs are free. {snapshot.error}\nCalls that need none run with gpus=0.",
            verdict=NOT_STARTED,
        )
    return snapshot


def holding(snapshot: Snapshot) -> Holding:
    """Return what each process holds; pids that do not exist here belong to another namespace."""
    return Holding(snapshot.processes, frozenset(strangers(snapshot)))


def strangers(snapshot: Snapshot | None) -> tuple[int, ...]:
    """Return the pids in a snapshot that do not exist here."""
    rows = () if snapshot is None else snapshot.processes
    return tuple(sorted(elsewhere(row.pid for row in rows)))
