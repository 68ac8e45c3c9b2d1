"""The GPUs that calls of this process have now: each leases its own, and the lease ends with the call's process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tfgpu_magic import control
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.state import DEVICES
from tfgpu_magic.config.wish import fold, is_skipped
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import leases
from tfgpu_magic.isolate.leases import Claim
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.snapshot import Snapshot


@dataclass(slots=True, eq=False)
class Lease:
    """What one call may have, while it runs.

    Attributes:
        policy: all that is asked of TensorFlow in its process.
        snapshot: the GPUs, as they were when its own were chosen; None where nobody looked.
        devices: its own GPUs; none where there is no GPU to be shared out.
        pid: tells its process, once it has one.
    """

    policy: Policy
    snapshot: Snapshot | None = None
    devices: tuple[Device, ...] = ()
    pid: Callable[[], int | None] = lambda: None

    def claims(self) -> list[Claim]:
        """What it may take, GPU by GPU."""
        return [Claim(leases.key(device.gpu), leases.size(device), self.pid()) for device in self.devices]


class Abandoned(Exception):
    """Nobody wants the lease any more that was waited for."""


class Ledger:
    """The leases that this process's calls have now. Any thread may ask."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a process that was forked of the ledger's own: no call of that is its own."""
        self._changed = threading.Condition()
        self._leases: list[Lease] = []
        self._ended = 0
        self._looking = threading.Lock()
        self._looks = 0
        self._seen = (0, Snapshot(time=0.0))

    def survey(self, policy: Policy, gpus: int | None) -> int | None:
        """How many calls at once the GPUs have room for; None where there is no GPU to be shared out.

        Args:
            policy: what is asked beyond what holds in this process.
            gpus: how many GPUs each call gets; None is one, where there is one.

        Raises:
            Refused: not even one call could have what is asked.
        """
        snapshot = look()
        devices = _offered(policy, snapshot, gpus)
        if devices is None:
            return None
        with self._changed:
            claims = self._claims()
        leases.choose(devices, snapshot.processes, claims, gpus or 1, lambda: control.names(snapshot))
        return leases.places(devices, claims, gpus or 1)

    @contextlib.contextmanager
    def lease(
        self,
        policy: Policy,
        gpus: int | None,
        *,
        wanted: Callable[[], bool] = lambda: True,
        waiting: Callable[[], None] = lambda: None,
    ) -> Iterator[Lease]:
        """Lease GPUs for a call, which ends with the block; waits while other calls of ours are in the way.

        Args:
            policy: what is asked beyond what holds in this process.
            gpus: how many GPUs; None is one, where there is one.
            wanted: whether there is still need for it, asked again at each `stir`.
            waiting: called once where it has to wait.

        Raises:
            Refused: others are in the way.
            Abandoned: it is no longer wanted.
        """
        lease = Lease(policy)
        try:
            self._take(lease, policy, gpus, wanted, waiting)
            yield lease
        finally:
            with self._changed:
                if lease in self._leases:
                    self._leases.remove(lease)
                    self._ended += 1
                    self._changed.notify_all()

    def stir(self) -> None:
        """Have all who wait ask again whether they are wanted."""
        with self._changed:
            self._changed.notify_all()

    def _take(
        self,
        lease: Lease,
        policy: Policy,
        gpus: int | None,
        wanted: Callable[[], bool],
        waiting: Callable[[], None],
    ) -> None:
        told = False
        while wanted():
            ended, snapshot = self._look()
            lease.snapshot = snapshot
            together = control.current().settled.then(policy)
            devices = _offered(policy, snapshot, gpus)
            if devices is None:
                lease.policy = together
                return
            with self._changed:
                chosen = self._choose(devices, snapshot, gpus or 1, ended)
                if chosen:
                    lease.policy, lease.devices = leases.settle(together, chosen), chosen
                    self._leases.append(lease)
                    return
            if not told:
                waiting()
                told = True
            with self._changed:
                # What one that ended meanwhile held is in the snapshot, as if it were another's.
                self._wait(ended, wanted)
        raise Abandoned

    def _look(self) -> tuple[int, Snapshot]:
        """How many leases had ended, and the GPUs as they are then. Who asks while somebody looks is told the same."""
        looks = self._looks
        with self._looking:
            if self._looks == looks or self._seen[0] != self._ended:
                self._seen = (self._ended, look())
                self._looks += 1
            return self._seen

    def _choose(
        self, devices: Sequence[Device], snapshot: Snapshot, count: int, ended: int
    ) -> tuple[Device, ...] | None:
        try:
            return leases.choose(devices, snapshot.processes, self._claims(), count, lambda: control.names(snapshot))
        except Refused:
            if ended != self._ended:
                return None
            raise

    def _wait(self, ended: int, wanted: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._ended != ended or not wanted())

    def _claims(self) -> list[Claim]:
        return [claim for lease in self._leases for claim in lease.claims()]


LEDGER = Ledger()
"""This process's own."""

os.register_at_fork(after_in_child=LEDGER.forget)


def candidates(policy: Policy, snapshot: Snapshot) -> tuple[Device, ...]:
    """The GPUs that a process which starts from here may use, and what a call is to take of each.

    Args:
        policy: what is asked beyond what holds in this process.
        snapshot: the machine's GPUs now.

    Raises:
        Refused: the words name a GPU that is not there, or hidden.
    """
    kernel = control.anew(snapshot)
    wish = fold(kernel.settled, policy, snapshot, kernel)
    if wish.choice is None and DEVICES not in kernel.outside and any(gpu.mig for gpu in snapshot.gpus):
        wish.seen = [gpu for gpu in snapshot.gpus if not gpu.mig]  # CUDA shows a process one instance: any, if told
    return tuple(leases.asked(device) for device in wish.devices() if not is_skipped(device.gpu, wish.seen, kernel))


def _offered(policy: Policy, snapshot: Snapshot, gpus: int | None) -> tuple[Device, ...] | None:
    """The GPUs to choose from; None where there are none, and none are asked for by number."""
    devices = candidates(policy, snapshot)
    if not devices and gpus is not None and snapshot.error:
        raise Refused(f"Not started. {leases.gpus(gpus)} for each call cannot be had. {snapshot.error}")
    return devices if devices or gpus is not None else None
