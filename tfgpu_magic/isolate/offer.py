"""The GPUs as calls find them: looked at, and which of them a process that starts from here may have."""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic import control
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.state import DEVICES
from tfgpu_magic.config.wish import fold, is_old, is_skipped
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import leases
from tfgpu_magic.isolate.book import lives
from tfgpu_magic.isolate.claims import Holding
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.snapshot import Snapshot

_LONGER = 10.0  # seconds in which a driver must answer that did not at once: it may have to be started first


def candidates(policy: Policy, snapshot: Snapshot) -> tuple[Device, ...]:
    """The GPUs that a process which starts from here may use, and what a call is to take of each.

    Args:
        policy: what is asked beyond what holds in this process.
        snapshot: the machine's GPUs now.

    Raises:
        Refused: the words name a GPU that is not there, or hidden.
    """
    return tuple(leases.asked(device) for device in seen(policy, snapshot))


def seen(policy: Policy, snapshot: Snapshot) -> Iterator[Device]:
    """The same with what a process takes to which the words are applied as they stand: a percentage is its pool's.

    Raises:
        Refused: as `candidates` does.
    """
    kernel = control.anew(snapshot)
    wish = fold(kernel.settled, policy, snapshot, kernel)
    if wish.choice is None and DEVICES not in kernel.outside and any(gpu.mig for gpu in snapshot.gpus):
        wish.seen = [gpu for gpu in snapshot.gpus if not gpu.mig]  # CUDA shows a process one instance: any, if told
    used = [device for device in wish.devices() if not is_skipped(device.gpu, wish.seen, kernel)]
    return iter([device for device in used if not is_old(device.gpu, kernel)] or used)


def offered(policy: Policy, snapshot: Snapshot, gpus: int | None) -> tuple[Device, ...] | None:
    """The GPUs to choose from; None where there are none, and none are asked for by number."""
    devices = candidates(policy, snapshot)
    if not devices and gpus is not None and snapshot.error:
        raise Refused(f"Not started. {leases.gpus(gpus)} for each call cannot be had. {snapshot.error}")
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
