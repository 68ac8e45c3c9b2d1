"""The leases of this process's calls: each call leases GPUs of its own, until its process has ended.

A call's `LeaseRequest` is met with what it may have of the GPUs. The leases of this user's other processes, and the
order of the calls that wait, are in the `lease_file` they share; `allocation` chooses among the GPUs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tfgpu_magic.engine import engine, other_processes
from tfgpu_magic.engine.room import Wait
from tfgpu_magic.errors import NOT_STARTED, Refused
from tfgpu_magic.ground import host
from tfgpu_magic.ground.message import Message, in_a_row, in_lines, msg
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.isolate.process.interrupt import deferring_interrupts
from tfgpu_magic.leases import allocation, lease_file
from tfgpu_magic.leases.allocation import LeasedGpu, ProcessMemory, key, size
from tfgpu_magic.leases.lease_file import LeaseEntry, LeaseTable, Page
from tfgpu_magic.machine.board import wanted
from tfgpu_magic.machine.owners.pids import began, elsewhere, family
from tfgpu_magic.machine.see import look
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.policy import Policy
from tfgpu_magic.policy.process_state import DEVICES
from tfgpu_magic.policy.requests.growth import GROWS
from tfgpu_magic.policy.resolver import is_skipped, resolve

T = TypeVar("T")

TICK = 0.25
"""Seconds between two looks into the lease file while a call waits: another process's change there wakes no thread."""

_AGAIN = 15.0
"""Seconds after which a call that waits looks again, though nothing has changed: the process ahead may be stopped."""

_FRESH = 5.0  # seconds for which a snapshot of the GPUs is used again, if no lease has ended meanwhile

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
        wait: seconds for which its process is to wait for room; None does not wait.
    """

    policy: Policy
    snapshot: Snapshot | None = None
    devices: tuple[Device, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    started: Callable[[int], None] = lambda _: None
    wait: float | None = None


class Abandoned(Exception):
    """The lease that was waited for is no longer wanted."""


@dataclass(slots=True, eq=False)
class LeaseRequest:
    """What a call asks for.

    Attributes:
        policy: the call's policy, in addition to the policy of this process.
        gpus: how many GPUs; None is one, if there is one.
        wanted: returns whether the call still wants them; called again at each `Leases.stir`.
        waiting: what is shown while our other calls are in the way.
        wait: how it waits: if that has a limit, for other programs too.
        came: when it came, in seconds since the epoch.
        number: its number in the lease table.
        snapshot: the GPUs, as they were last seen for it; None before.
        names: the program behind each pid, for the text of a refusal; None while they have not been read.
    """

    policy: Policy
    gpus: int | None = None
    wanted: Callable[[], bool] = lambda: True
    waiting: Message | str = ""
    wait: Wait = field(default_factory=lambda: Wait(show=bool, job=True))
    came: float = field(default_factory=time.time)
    number: int = 0
    snapshot: Snapshot | None = None
    names: Mapping[int, str] | None = None

    def devices(self, here: Policy, snapshot: Snapshot) -> tuple[Device, ...] | None:
        """Return the GPUs to choose from under this process's policy `here`; None if there is no GPU to share out."""
        devices = candidates(here, self.policy, snapshot)
        if not devices and self.gpus is not None and snapshot.error:
            text = msg("{gpus} for each call cannot be had.", gpus=allocation.gpus(self.gpus))
            raise Refused(in_a_row((text, snapshot.error)), verdict=NOT_STARTED)
        return devices if devices or self.gpus is not None else None

    def alternatives(self, snapshot: Snapshot) -> Iterator[tuple[Policy, tuple[Device, ...] | Refused | None]]:
        """Yield this process's policy and its fallbacks, each with its `devices`, or why there can be none."""
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
        """Raise the refusal of the request."""
        raise error


class LeaseRequestForAll(LeaseRequest):
    """A request for what a policy takes of every GPU; what applies the policy explains better what is in its way."""

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
        """Ignore the refusal: applying the policy raises it, if it was not waited for."""
        if self.wait.limit is not None:
            raise error


class _Unnamed(Exception):
    """A refusal names programs whose names have not been read."""


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
        self._over: set[int] = set()  # the calls that are over, and whose entries are to be removed
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
                    leased = _others(page)
                    break

        def room(here: Policy) -> int | None:
            devices = LeaseRequest(policy, gpus).devices(here, snapshot)
            if devices is None:
                return None
            allocation.choose(devices, held(snapshot), leased, gpus or 1, lambda: other_processes.names(snapshot))
            return allocation.places(devices, leased, gpus or 1)

        return first(functools.partial(room, here) for here in nearest_first(snapshot))

    @contextlib.contextmanager
    def lease(self, request: LeaseRequest) -> Iterator[Lease]:
        """Lease GPUs for a call until the end of the block; wait while our other calls are in the way.

        Raises:
            Refused: other programs are in the way, or the driver does not answer.
            Abandoned: it is no longer wanted.
        """
        try:
            with self._turn() as page:
                request.number = page.number()
                page.entries[request.number] = LeaseEntry(
                    number=request.number, slot=self._table.slot, seen=time.monotonic(), came=request.came
                )
            try:
                with request.wait:
                    policy, devices = self._take(request)
            except Refused as error:
                wanted.note(error.retryable)
                request.refuse(error)
                policy, devices = engine.inherited(request.snapshot).then(request.policy), ()
                self._over.add(request.number)  # it runs without GPUs of its own, and no call waits behind it
                self._remove_ended()
            yield Lease(policy, request.snapshot, devices, started=functools.partial(self._started, request.number))
        finally:
            self._over.add(request.number)  # before anything that can be interrupted: any later turn removes its entry
            self._remove_ended()

    def stir(self) -> None:
        """Make all waiting calls check again whether they are wanted."""
        with self._changed:
            self._changed.notify_all()

    def forget(self) -> None:
        """Drop the parent's leases, in a process that was forked from the one that has them."""
        self._changed, self._looking = threading.Condition(), threading.Lock()  # a thread of the parent may hold them
        self._over, self._waiting = set(), set()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[Page]:
        """Yield the table's content under its lock, without this process's calls that are over, wherever interrupted.

        Notify all waiting calls if it has changed, by this process or by another.
        """
        with self._changed:
            over = self._over.copy()
            with self._table.turn() as page:
                for entry in list(page.entries.values()):
                    if entry.slot == self._table.slot and entry.number in over:
                        page.drop(entry.number)
                yield page
                if self._known != page.changes:
                    self._known = page.changes
                    self._changed.notify_all()
            self._over -= over

    def _remove_ended(self) -> None:
        """Remove the entries of calls that are over; an interrupt meanwhile is raised when that is done."""
        with deferring_interrupts(), self._turn():
            pass

    def _take(self, request: LeaseRequest) -> tuple[Policy, tuple[Device, ...]]:
        """Return the policy and the GPUs for a request; wait for them while our other calls are in the way."""
        since = request.came
        while request.wanted():
            refused: Refused | None = None
            ended, snapshot = self._look(since)
            request.snapshot = snapshot
            since = time.time() - _FRESH
            alternatives = list(request.alternatives(snapshot))  # asking CUDA for them may take a while
            try:
                with self._turn() as page:
                    if page.ended != ended:  # the snapshot has, as if others', what a call held that ended meanwhile
                        continue
                    try:
                        found = first(functools.partial(self._found, page, request, *one) for one in alternatives)
                    except Refused as error:
                        if request.wait.limit is None or not error.retryable:
                            raise
                        found, refused = None, error
                    if found is not None:
                        self._grant(page, request, found[1])
                        return found
                    changes = page.changes
            except _Unnamed:  # reading them may take a second, in which nobody waits for the table
                request.names = other_processes.names(snapshot)
                continue
            pause = request.wait.go_on(refused or Refused(request.waiting, verdict=NOT_STARTED))
            self._wait(changes, request, pause if refused else _AGAIN)
            since, request.names = (time.time() if refused else since), None
        raise Abandoned

    def _grant(self, page: Page, request: LeaseRequest, devices: tuple[Device, ...]) -> None:
        """Write what a call has from now on; remove its entry if it has no GPU."""
        if not devices:
            page.drop(request.number)
            return
        known = strangers(request.snapshot)
        leased = (LeasedGpu(key(device.gpu), size(device), known=known) for device in devices)
        page.put(replace(page.entries[request.number], requested=(), leased=tuple(leased)))

    def _found(
        self, page: Page, request: LeaseRequest, here: Policy, devices: tuple[Device, ...] | Refused | None
    ) -> tuple[Policy, tuple[Device, ...]] | None:
        """Return the policy and the GPUs that a call gets under this process's policy `here`; None if it has to wait.

        Raises:
            Refused: it cannot have what it asks for.
        """
        together = here.then(request.policy)
        if isinstance(devices, Refused):
            raise devices
        if devices is None:
            return together, ()
        chosen = self._chosen(page, request, devices)
        return None if chosen is None else (request.settle(together, chosen), chosen)

    def _chosen(self, page: Page, request: LeaseRequest, devices: tuple[Device, ...]) -> tuple[Device, ...] | None:
        """Return the GPUs that a call gets now, if it is its turn; write what it needs into the table."""
        own, requested = page.entries[request.number], tuple(key(device.gpu) for device in devices)
        renewed = replace(own, requested=requested, seen=time.monotonic())
        if own.requested:
            page.entries[request.number] = renewed
        else:
            page.put(renewed)
        before = (entry for number, entry in page.entries.items() if number < request.number and not entry.leased)
        if any(not entry.requested and entry.slot == self._table.slot for entry in before):
            return None  # a call of this process that came before is still looking at the GPUs

        def names() -> Mapping[int, str]:
            if request.names is None:
                raise _Unnamed
            return request.names

        memory = held(request.snapshot or Snapshot(time=0.0))
        chosen = allocation.choose(devices, memory, _others(page), request.count(devices), names)
        # The calls ahead may wait for the very call that this process runs in.
        return None if not host.in_worker and page.waits_behind(request.number, requested) else chosen

    def _look(self, since: float) -> tuple[int, Snapshot]:
        """Return how many leases had ended, and the GPUs as they were then or later, and not before `since`."""
        with self._looking:
            with self._turn() as page:
                ended = page.ended
            if self._seen[0] != ended or self._seen[1].time < since:
                self._seen = (ended, see())
            return self._seen

    def _wait(self, changes: int, request: LeaseRequest, seconds: float = _AGAIN) -> None:
        """Wait until something has changed in the table, or the call is no longer wanted; so long at the most."""
        until = time.monotonic() + seconds
        with self._changed:
            self._waiting.add(request.number)
            try:
                while request.wanted() and self._known == changes and time.monotonic() < until:
                    if time.monotonic() - self._looked < TICK:
                        self._changed.wait(TICK)
                    else:
                        self._renew()
            finally:
                self._waiting.discard(request.number)

    def _renew(self) -> None:
        """Read the table, and renew the entries of all calls that wait in this process."""
        with self._turn() as page:
            self._looked = time.monotonic()
            for number in self._waiting & page.entries.keys():
                page.entries[number] = replace(page.entries[number], seen=self._looked)

    def _started(self, number: int, pid: int) -> None:
        """Write the process of a call into what it has."""
        with self._turn() as page:
            if (entry := page.entries.get(number)) is not None:
                known = tuple(replace(one, pid=pid, began=began(pid)) for one in entry.leased)
                page.entries[number] = replace(entry, leased=known)


LEASES = Leases(lease_file.TABLE)
"""The leases of this process."""

os.register_at_fork(after_in_child=LEASES.forget)


def nearest_first(snapshot: Snapshot) -> Iterator[Policy]:
    """Yield this process's policy for a call; while it is not judged yet, also its fallbacks, the nearest first.

    A call that cannot have one of them tries the next: it is never refused because of this process's own policy.
    """
    yield engine.current().settled
    if not engine.current().judged:
        fallen = engine.inherited(snapshot)
        yield fallen
        yield fallen.then(GROWS)


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
    fallen = here != engine.current().settled

    def may_be_less(device: Device) -> bool:
        """Return whether a call may have less of a GPU, on which neither it nor this process insists."""
        words = device.words
        return device.capped or (fallen and words in here.requests and words not in policy.requests)

    devices = (allocation.asked(device) for device in seen(here, policy, snapshot))
    return tuple(allocation.lowered(device) if may_be_less(device) else device for device in devices)


def seen(here: Policy, policy: Policy, snapshot: Snapshot) -> Iterator[Device]:
    """Yield the same GPUs with what a process takes that applies the policy as written: a percentage is of its pool.

    Raises:
        Refused: as `candidates` does.
    """
    kernel = engine.anew(snapshot)
    resolved = resolve(here, policy, snapshot, kernel)
    if resolved.choice is None and DEVICES not in kernel.outside and any(gpu.mig for gpu in snapshot.gpus):
        # CUDA shows a process one instance: any, if named.
        resolved.seen = [gpu for gpu in snapshot.gpus if not gpu.mig]
    return iter([device for device in resolved.devices() if not is_skipped(device.gpu, resolved.seen, kernel)])


def see() -> Snapshot:
    """Look at the GPUs; give a driver that does not answer a second, longer time.

    Raises:
        Refused: it does not answer. That there is no GPU is an answer.
    """
    snapshot = look()
    if snapshot.error and not snapshot.absent:
        snapshot = look(_SECOND_TIMEOUT)
    if snapshot.error and not snapshot.absent:
        unread = in_a_row(("The driver did not report which GPUs are free.", snapshot.error))
        raise Refused(in_lines((unread, "Calls that need none run with gpus=0.")), verdict=NOT_STARTED)
    return snapshot


def held(snapshot: Snapshot) -> ProcessMemory:
    """Return what each process holds; pids that do not exist here belong to another namespace."""
    return ProcessMemory(snapshot.processes, frozenset(strangers(snapshot)))


def strangers(snapshot: Snapshot | None) -> tuple[int, ...]:
    """Return the pids in a snapshot that do not exist here."""
    rows = () if snapshot is None else snapshot.processes
    return tuple(sorted(elsewhere(row.pid for row in rows)))


def _others(page: Page) -> list[LeasedGpu]:
    """Return what all calls have, but those that this process runs in: it may use what these have."""
    ours = family() if host.in_worker else frozenset()
    return [one for one in page.leased() if one.pid not in ours]
