"""The GPUs that calls of this process have now: each leases its own, and the lease ends with the call's process.

What other processes of this user have is in the lease file that they share, and so is the order of those that wait.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tfgpu_magic import control
from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import allocation, offer
from tfgpu_magic.isolate.claims import Claim, Need, key, size
from tfgpu_magic.isolate.demand import Alternative, Demand, DemandForAll, alternatives
from tfgpu_magic.isolate.lease import Abandoned, Lease
from tfgpu_magic.isolate.lease_file import ABSENT, Entry, LeaseFile, LeaseTable, Page, began
from tfgpu_magic.isolate.process import inside
from tfgpu_magic.monitor.snapshot import Snapshot

TICK = 0.25
"""Seconds between two looks into the lease file while a call waits: what other processes do there wakes nobody here."""

_FRESH = 5.0  # seconds in which GPUs that were seen are taken to be so still, if no lease has ended


class Leases:
    """The leases that this process's calls have now. Any thread may ask.

    Args:
        table: where they and others' are written.
    """

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._seen = (-1, Snapshot(time=0.0))
        self._wishes: set[Demand] = set()
        self._waiting: set[int] = set()
        self._known, self._looked = -1, 0.0

    def survey(self, policy: Policy, gpus: int | None) -> int | None:
        """How many calls at once the GPUs have room for; None where there is no GPU to be shared out.

        Args:
            policy: what is asked beyond what holds in this process.
            gpus: how many GPUs each call gets; None is one, where there is one.

        Raises:
            Refused: not even one call could have what is asked, or the driver does not answer.
        """
        since = time.time()
        while True:
            ended, snapshot = self._look(since)
            with self._turn() as page:
                if page.ended == ended:  # else what one that ended meanwhile held is in the snapshot, as if others'
                    claims = _others(page)
                    break

        def room(here: Policy) -> int | None:
            devices = offer.offered(here, policy, snapshot, gpus)
            if devices is None:
                return None
            allocation.choose(devices, offer.holding(snapshot), claims, gpus or 1, lambda: control.names(snapshot))
            return allocation.places(devices, claims, gpus or 1)

        return offer.first(functools.partial(room, here) for here in offer.nearest_first(snapshot))

    def lease(
        self,
        policy: Policy,
        gpus: int | None,
        *,
        wanted: Callable[[], bool] = lambda: True,
        waiting: Callable[[], None] = lambda: None,
    ) -> contextlib.AbstractContextManager[Lease]:
        """Lease GPUs for a call, which ends with the block; waits while other calls of ours are in the way.

        Args:
            policy: what is asked beyond what holds in this process.
            gpus: how many GPUs; None is one, where there is one.
            wanted: whether there is still need for it, asked again at each `stir`.
            waiting: called once where it has to wait.

        Raises:
            Refused: others are in the way, or the driver does not answer.
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
        """Lease what a policy takes of every GPU that this process sees; else as `lease`.

        Where others than our calls are in the way, that is not said here: whoever applies the policy says it better.
        """
        return self._leased(DemandForAll(policy=policy, gpus=None, wanted=wanted, waiting=waiting))

    def stir(self) -> None:
        """Have all who wait ask again whether they are wanted."""
        with self._changed:
            self._changed.notify_all()

    def forget(self) -> None:
        """In a process that was forked of the ledger's own: its calls are another's."""
        self._changed, self._looking = threading.Condition(), threading.Lock()  # a thread that is not here had them
        self._wishes, self._waiting = set(), set()
        self._table.forget()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[Page]:
        """Have the table alone, without those calls of ours that are over, wherever an interrupt has met them.

        All who wait are told when it has changed, by us or by others.
        """
        with self._changed, self._table.turn() as page:
            calls = {demand.ticket for demand in self._wishes.copy()}
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
            self._wishes.add(demand)
            with self._turn() as page:
                demand.ticket = page.number()
                page.entries[demand.ticket] = Entry(ticket=demand.ticket, slot=self._table.slot, seen=time.monotonic())
            try:
                policy, devices = self._take(demand)
            except Refused as error:
                demand.refuse(error)
                policy, devices = control.inherited(demand.snapshot).then(demand.policy), ()
                self._wishes.discard(demand)  # it runs without GPUs of its own, and nobody waits behind it
                self._tidy()
            yield Lease(policy, demand.snapshot, devices, started=functools.partial(self._started, demand.ticket))
        finally:
            self._wishes.discard(demand)  # before anything that can be interrupted: it is over, whoever strikes it out
            self._tidy()

    def _tidy(self) -> None:
        """Strike out what is over; an interrupt meanwhile comes when that is done."""
        try:
            with self._turn():
                pass
        except KeyboardInterrupt:
            with self._turn():
                pass
            raise

    def _take(self, demand: Demand) -> tuple[Policy, tuple[Device, ...]]:
        """Take what is wished, a policy and GPUs; wait for it where other calls of ours are in the way."""
        since, told = demand.came, False
        while demand.wanted():
            ended, snapshot = self._look(since)
            demand.snapshot = snapshot
            since = time.time() - _FRESH
            possible = list(alternatives(demand, snapshot))
            with self._turn() as page:
                if page.ended != ended:  # what one that ended meanwhile held is in the snapshot, as if others'
                    continue
                find = functools.partial(self._found, page, demand, snapshot)
                found = offer.first(functools.partial(find, way) for way in possible)
                if found is not None:
                    self._enter(page, demand, found[1])
                    return found
                changes = page.changes
            if told:
                self._wait(changes, demand)
            if not told:
                demand.waiting()
                told = True
        raise Abandoned

    def _enter(self, page: Page, demand: Demand, devices: tuple[Device, ...]) -> None:
        """Write down what a call has from now on, if it is any GPU's."""
        if not devices:
            page.drop(demand.ticket)
            return
        since, known = page.number(), offer.strangers(demand.snapshot)
        claims = tuple(Claim(key(one.gpu), size(one), since=since, known=known) for one in devices)
        page.put(replace(page.entries[demand.ticket], need=None, claims=claims))

    def _found(
        self, page: Page, demand: Demand, snapshot: Snapshot, way: Alternative
    ) -> tuple[Policy, tuple[Device, ...]] | None:
        """What a call gets in one way, its policy and its GPUs; None where it has to wait.

        Raises:
            Refused: not in this way.
        """
        together = way.here.then(demand.policy)
        if isinstance(way.devices, Refused):
            raise way.devices
        if way.devices is None:
            return together, ()
        chosen = self._chosen(page, demand, way.devices, snapshot)
        return None if chosen is None else (demand.settle(together, chosen), chosen)

    def _chosen(
        self, page: Page, demand: Demand, devices: tuple[Device, ...], snapshot: Snapshot
    ) -> tuple[Device, ...] | None:
        """What a call gets now, if it is its turn; what it waits for is written down."""
        count, now = demand.count(devices), time.monotonic()
        need = Need.of(demand.ticket, devices, count)
        own = page.entries[demand.ticket]
        if own.need is None:
            page.put(replace(own, need=need, seen=now))
        else:
            page.entries[demand.ticket] = replace(own, need=need, seen=now)
        before = [entry for ticket, entry in page.entries.items() if ticket < demand.ticket and not entry.claims]
        if any(entry.need is None and entry.slot == self._table.slot for entry in before):
            return None  # who came before, and is still looking
        ahead = [entry.need for entry in before if entry.need is not None and now - entry.seen < ABSENT]
        return allocation.choose_in_turn(
            devices,
            offer.holding(snapshot),
            _others(page),
            count,
            () if inside.running else ahead,  # who has waited so long may wait for the very call that we are in
            snapshot.gpus,
            lambda: control.names(snapshot),
        )

    def _look(self, since: float) -> tuple[int, Snapshot]:
        """How many leases had ended, and the GPUs as they were then, or later; not before a time."""
        with self._looking:
            with self._turn() as page:
                ended = page.ended
            if self._seen[0] != ended or self._seen[1].time < since:
                self._seen = (ended, offer.see())
            return self._seen

    def _wait(self, changes: int, demand: Demand) -> None:
        """Wait until something has changed in the table, or the call is not wanted."""
        with self._changed:
            self._waiting.add(demand.ticket)
            try:
                while demand.wanted() and self._known == changes:
                    if time.monotonic() - self._looked < TICK:
                        self._changed.wait(TICK)
                    else:
                        self._look_after()
            finally:
                self._waiting.discard(demand.ticket)

    def _look_after(self) -> None:
        """Look into the table for all who wait here, and say there that they do."""
        with self._turn() as page:
            self._looked = time.monotonic()
            for ticket in self._waiting & page.entries.keys():
                page.entries[ticket] = replace(page.entries[ticket], seen=self._looked)

    def _started(self, ticket: int, pid: int) -> None:
        """Know the process of a call that has its GPUs."""
        with self._turn() as page:
            if (entry := page.entries.get(ticket)) is not None:
                known = tuple(replace(one, pid=pid, began=began(pid)) for one in entry.claims)
                page.entries[ticket] = replace(entry, claims=known)


LEASES = Leases(LeaseFile())
"""This process's own."""

os.register_at_fork(after_in_child=LEASES.forget)


def _others(page: Page) -> list[Claim]:
    """What all have but for the calls that this process runs in: what is theirs is ours, and so is the room for it."""
    family = _family() if inside.running else frozenset()
    return [claim for claim in page.claims() if claim.pid not in family]


def _family() -> frozenset[int]:
    """This process and its ancestors."""
    found: set[int] = set()
    pid = os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        with contextlib.suppress(OSError):
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return frozenset(found)
