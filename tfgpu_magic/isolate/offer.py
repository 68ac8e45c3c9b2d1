"""The GPUs as calls find them: looked at, and which of them a process that starts from here may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tfgpu_magic import control
from tfgpu_magic.config import fallback
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.process_state import DEVICES
from tfgpu_magic.config.resolver import is_old, is_skipped, resolve
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import allocation
from tfgpu_magic.isolate.claims import Holding
from tfgpu_magic.isolate.lease_file import lives
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.snapshot import Snapshot

T = TypeVar("T")

_LONGER = 10.0  # seconds in which a driver must answer that did not at once: it may have to be started first


def nearest_first(snapshot: Snapshot) -> Iterator[Policy]:
    """What holds in this process for a call; where it waits to be judged, also what is nearest to it, step by step.

    Who cannot have one of them tries the next: a policy that stands here never is why a call is refused.
    """
    yield control.current().settled
    if not control.current().judged:
        fallen = control.inherited(snapshot)
        yield fallen
        yield fallen.then(fallback.GROWS)


def first(attempts: Iterable[Callable[[], T]]) -> T:
    """What the first of several ways gives that is not refused.

    Raises:
        Refused: all are; it is the first one's, which is about what was said.
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
    """The GPUs that a process which starts from here may use, and what a call is to take of each.

    Args:
        here: what holds in this process.
        policy: what is asked beyond that.
        snapshot: the machine's GPUs now.

    Raises:
        Refused: the words name a GPU that is not there, or hidden.
    """
    fallen = here != control.current().settled
    devices = (allocation.asked(device) for device in seen(here, policy, snapshot))
    return tuple(
        allocation.lowered(device) if fallen and device.words in here.requests else device for device in devices
    )


def seen(here: Policy, policy: Policy, snapshot: Snapshot) -> Iterator[Device]:
    """The same with what a process takes to which the words are applied as they stand: a percentage is its pool's.

    Raises:
        Refused: as `candidates` does.
    """
    kernel = control.anew(snapshot)
    demand = resolve(here, policy, snapshot, kernel)
    if demand.choice is None and DEVICES not in kernel.outside and any(gpu.mig for gpu in snapshot.gpus):
        demand.seen = [gpu for gpu in snapshot.gpus if not gpu.mig]  # CUDA shows a process one instance: any, if told
    used = [device for device in demand.devices() if not is_skipped(device.gpu, demand.seen, kernel)]
    return iter([device for device in used if not is_old(device.gpu, kernel)] or used)


def offered(here: Policy, policy: Policy, snapshot: Snapshot, gpus: int | None) -> tuple[Device, ...] | None:
    """The GPUs to choose from; None where there are none, and none are asked for by number."""
    devices = candidates(here, policy, snapshot)
    if not devices and gpus is not None and snapshot.error:
        raise Refused(f"Not started. {allocation.gpus(gpus)} for each call cannot be had. {snapshot.error}")
    return devices if devices or gpus is not None else None


def see() -> Snapshot:
    """Look at the GPUs; a driver that does not answer is asked once more, with patience.

    Raises:
        Refused: it does not answer. That there is no GPU is an answer.
    """
    snapshot = look()
    if snapshot.error and not snapshot.absent:
        snapshot = look(_LONGER)
    if snapshot.error and not snapshot.absent:
        raise Refused(
            f"Not started. Nobody knows which GPUs are free. {snapshot.error}\nCalls that need none run with gpus=0."
        )
    return snapshot


def holding(snapshot: Snapshot) -> Holding:
    """Who holds what; pids that are none here are another namespace's."""
    return Holding(snapshot.processes, frozenset(strangers(snapshot)))


def strangers(snapshot: Snapshot | None) -> tuple[int, ...]:
    """The pids in a snapshot that are none here."""
    rows = () if snapshot is None else snapshot.processes
    return tuple(sorted({row.pid for row in rows if not lives(row.pid)}))
