"""The leases of this process's calls: each call leases GPUs of its own, until its process has ended.

The leases of this user's other processes, and the order of the calls that wait, are in the `lease_file` they share.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tfgpu_magic import control, other_processes
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import allocation, lease
from tfgpu_magic.isolate.allocation import Claim, is_fair, key, size
from tfgpu_magic.isolate.lease import Abandoned, Demand, DemandForAll, Lease
from tfgpu_magic.isolate.lease_file import Entry, LeaseFile, LeaseTable, Page
from tfgpu_magic.isolate.process import inside
from tfgpu_magic.monitor.pids import began, family
from tfgpu_magic.monitor.snapshot import Snapshot

TICK = 0.25
"""Seconds between two looks into the lease file while a call waits: another process's change there wakes no thread."""

_AGAIN = 15.0
"""Seconds after which a call that waits looks again, though nothing has changed: the process ahead may be stopped."""

_FRESH = 5.0  # seconds for which a snapshot of the GPUs is used again, if no lease has ended meanwhile


class Leases:
    """The leases that this process's calls have now. Thread-safe.

    Args:
        table: where these leases and those of other processes are written.
    """

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._seen = (-1, Snapshot(time=0.0))
        self._demands: set[Demand] = set()
        self._waiting: set[int] = set()
        self._known, self._looked = -1, 0.0

    def survey(self, policy: Policy, gpus: int | None) -> int | None:
        """Return how many calls at once the GPUs have room for; None if there is no GPU to share out.

        Args:
            policy: the calls' policy, in addition to the policy of this process.
            gpus: how many GPUs each call gets; None is one, if there is one.

        Raises:
            Refused: not even one call could have what is asked, or the driver does not answer.
        """
        since = time.time()
        while True:
            ended, snapshot = self._look(since)
            with self._turn() as page:
                if page.ended == ended:  # else the snapshot has, as if others', what a call held that ended meanwhile
                    claims = _others(page)
                    break

        def room(here: Policy) -> int | None:
            devices = lease.offered(here, policy, snapshot, gpus)
            if devices is None:
                return None
            allocation.choose(
                devices, lease.holding(snapshot), claims, gpus or 1, lambda: other_processes.names(snapshot)
            )
            return allocation.places(devices, claims, gpus or 1)

        return lease.first(functools.partial(room, here) for here in lease.nearest_first(snapshot))

    def lease(
        self,
        policy: Policy,
        gpus: int | None,
        *,
        wanted: Callable[[], bool] = lambda: True,
        waiting: Callable[[], None] = lambda: None,
    ) -> contextlib.AbstractContextManager[Lease]:
        """Lease GPUs for a call until the end of the block; wait while our other calls are in the way.

        Args:
            policy: the call's policy, in addition to the policy of this process.
            gpus: how many GPUs; None is one, if there is one.
            wanted: returns whether the lease is still wanted; called again at each `stir`.
            waiting: called once if it has to wait.

        Raises:
            Refused: other programs are in the way, or the driver does not answer.
            Abandoned: it is no longer wanted.
        """
        return self._leased(Demand(policy=policy, gpus=gpus, wanted=wanted, waiting=waiting))

    def share(
        self,
        policy: Policy,
        *,
        wanted: Callable[[], bool] = lambda: True,
        waiting: Callable[[], None] = lambda: None,
    ) -> contextlib.AbstractContextManager[Lease]:
        """Lease what a policy takes of every GPU that this process sees; otherwise as `lease`.

        If other programs than our calls are in the way, it refuses nothing: applying the policy explains that better.
        """
        return self._leased(DemandForAll(policy=policy, gpus=None, wanted=wanted, waiting=waiting))

    def stir(self) -> None:
        """Have all waiting calls check again whether they are wanted."""
        with self._changed:
            self._changed.notify_all()

    def forget(self) -> None:
        """Drop the parent's leases, in a process that was forked from the one that has them."""
        self._changed, self._looking = threading.Condition(), threading.Lock()  # a thread of the parent may hold them
        self._demands, self._waiting = set(), set()
        self._table.forget()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[Page]:
        """Give the table's content under its lock, without this process's calls that are over, wherever interrupted.

        Notify all waiting calls if it has changed, by this process or by another.
        """
        with self._changed, self._table.turn() as page:
            calls = {demand.ticket for demand in self._demands.copy()}
            for entry in list(page.entries.values()):
                if entry.slot == self._table.slot and entry.ticket not in calls:
                    page.drop(entry.ticket)
            yield page
            if self._known != page.changes:
                self._known = page.changes
                self._changed.notify_all()

    @contextlib.contextmanager
    def _leased(self, demand: Demand) -> Iterator[Lease]:
        try:
            self._demands.add(demand)
            with self._turn() as page:
                demand.ticket = page.number()
                page.entries[demand.ticket] = Entry(
                    ticket=demand.ticket, slot=self._table.slot, seen=time.monotonic(), came=demand.came
                )
            try:
                policy, devices = self._take(demand)
            except Refused as error:
                demand.refuse(error)
                policy, devices = control.inherited(demand.snapshot).then(demand.policy), ()
                self._demands.discard(demand)  # it runs without GPUs of its own, and no call waits behind it
                self._remove_ended()
            yield Lease(policy, demand.snapshot, devices, started=functools.partial(self._started, demand.ticket))
        finally:
            self._demands.discard(demand)  # before anything that can be interrupted: any later turn removes its entry
            self._remove_ended()

    def _remove_ended(self) -> None:
        """Remove the entries of calls that are over; an interrupt meanwhile is raised when that is done."""
        try:
            with self._turn():
                pass
        except KeyboardInterrupt:
            with self._turn():
                pass
            raise

    def _take(self, demand: Demand) -> tuple[Policy, tuple[Device, ...]]:
        """Return the policy and the GPUs for a demand; wait for them while our other calls are in the way."""
        since, announced = demand.came, False
        while demand.wanted():
            ended, snapshot = self._look(since)
            demand.snapshot = snapshot
            since = time.time() - _FRESH
            offers = list(demand.offers(snapshot))  # asking CUDA for them may take a while
            with self._turn() as page:
                if page.ended != ended:  # the snapshot has, as if others', what a call held that ended meanwhile
                    continue
                found = lease.first(functools.partial(self._found, page, demand, *one) for one in offers)
                if found is not None:
                    self._grant(page, demand, found[1])
                    return found
                changes = page.changes
            if announced:
                self._wait(changes, demand)
            if not announced:
                demand.waiting()
                announced = True
        raise Abandoned

    def _grant(self, page: Page, demand: Demand, devices: tuple[Device, ...]) -> None:
        """Write the claims that a call has from now on; remove its entry if it has no GPU."""
        if not devices:
            page.drop(demand.ticket)
            return
        known = lease.strangers(demand.snapshot)
        claims = tuple(Claim(key(device.gpu), size(device), known=known, fair=is_fair(device)) for device in devices)
        page.put(replace(page.entries[demand.ticket], needs=(), claims=claims))

    def _found(
        self, page: Page, demand: Demand, here: Policy, devices: tuple[Device, ...] | Refused | None
    ) -> tuple[Policy, tuple[Device, ...]] | None:
        """Return the policy and the GPUs that a call gets under this process's policy `here`; None if it has to wait.

        Raises:
            Refused: it cannot have what it asks for.
        """
        together = here.then(demand.policy)
        if isinstance(devices, Refused):
            raise devices
        if devices is None:
            return together, ()
        chosen = self._chosen(page, demand, devices)
        return None if chosen is None else (demand.settle(together, chosen), chosen)

    def _chosen(self, page: Page, demand: Demand, devices: tuple[Device, ...]) -> tuple[Device, ...] | None:
        """Return the GPUs that a call gets now, if it is its turn; write what it needs into the table."""
        own, needs = page.entries[demand.ticket], tuple(key(device.gpu) for device in devices)
        renewed = replace(own, needs=needs, seen=time.monotonic())
        if own.needs:
            page.entries[demand.ticket] = renewed
        else:
            page.put(renewed)
        before = (entry for ticket, entry in page.entries.items() if ticket < demand.ticket and not entry.claims)
        if any(not entry.needs and entry.slot == self._table.slot for entry in before):
            return None  # a call of this process that came before is still looking at the GPUs
        snapshot = demand.snapshot or Snapshot(time=0.0)
        chosen = allocation.choose(
            devices,
            lease.holding(snapshot),
            _others(page),
            demand.count(devices),
            lambda: other_processes.names(snapshot),
        )
        # The calls ahead may wait for the very call that this process runs in.
        return None if not inside.running and page.waits_behind(demand.ticket, needs) else chosen

    def _look(self, since: float) -> tuple[int, Snapshot]:
        """Return how many leases had ended, and the GPUs as they were then or later, and not before `since`."""
        with self._looking:
            with self._turn() as page:
                ended = page.ended
            if self._seen[0] != ended or self._seen[1].time < since:
                self._seen = (ended, lease.see())
            return self._seen

    def _wait(self, changes: int, demand: Demand) -> None:
        """Wait until something has changed in the table, or the call is no longer wanted; not for ever."""
        until = time.monotonic() + _AGAIN
        with self._changed:
            self._waiting.add(demand.ticket)
            try:
                while demand.wanted() and self._known == changes and time.monotonic() < until:
                    if time.monotonic() - self._looked < TICK:
                        self._changed.wait(TICK)
                    else:
                        self._renew()
            finally:
                self._waiting.discard(demand.ticket)

    def _renew(self) -> None:
        """Read the table, and renew the entries of all calls that wait in this process."""
        with self._turn() as page:
            self._looked = time.monotonic()
            for ticket in self._waiting & page.entries.keys():
                page.entries[ticket] = replace(page.entries[ticket], seen=self._looked)

    def _started(self, ticket: int, pid: int) -> None:
        """Write the process of a call into its claims."""
        with self._turn() as page:
            if (entry := page.entries.get(ticket)) is not None:
                known = tuple(replace(claim, pid=pid, began=began(pid)) for claim in entry.claims)
                page.entries[ticket] = replace(entry, claims=known)


LEASES = Leases(LeaseFile())
"""The leases of this process."""

os.register_at_fork(after_in_child=LEASES.forget)


def _others(page: Page) -> list[Claim]:
    """Return the claims of all calls but those that this process runs in: it may use what these have claimed."""
    ours = family() if inside.running else frozenset()
    return [claim for claim in page.claims() if claim.pid not in ours]
