"""The leases of this process's calls: each call leases GPUs of its own, until its process has ended.

A call's `LeaseRequest` is met with what it may have of the GPUs. The claims of this user's other calls, and the order
of those that wait, are in the `ledger` that all processes share; `allocation` chooses among the GPUs.
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

from tfgpu_magic.claims import allocation
from tfgpu_magic.claims.allocation import ProcessMemory, key, size
from tfgpu_magic.claims.claim import Claim, LedgerState
from tfgpu_magic.claims.ledger import LEDGER, ClaimLedger
from tfgpu_magic.engine import engine
from tfgpu_magic.engine.other_processes import ProcessNames, Unnamed, names
from tfgpu_magic.engine.room import Wait, is_first
from tfgpu_magic.errors import NOT_STARTED, Refused, TooLate
from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.message import Message, join_lines, msg, paragraph
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.machine.owners.pids import family, missing
from tfgpu_magic.machine.see import look
from tfgpu_magic.policy import fit
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.policy import Policy
from tfgpu_magic.policy.process_state import DEVICES
from tfgpu_magic.policy.requests.growth import GROWS
from tfgpu_magic.policy.resolver import is_skipped, resolve, shares

T = TypeVar("T")

TICK = 0.1
"""Seconds between two looks into the ledger while a call waits."""

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
        number: its number in the ledger, for its process to join it; None if it has none there.
    """

    policy: Policy
    snapshot: Snapshot | None = None
    devices: tuple[Device, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    number: int | None = None


class Abandoned(Exception):
    """The lease that was waited for is no longer wanted."""


@dataclass(slots=True, eq=False)
class LeaseRequest:
    """What a call asks for.

    Attributes:
        policy: the call's policy, in addition to the policy of this process.
        gpus: how many GPUs; None is one, if there is one.
        wanted: returns whether the call still wants them.
        waiting: what is shown while our other calls are in the way.
        wait: how it waits: if that has a limit, for other programs too.
        for_all: whether it is for what the policy takes of every GPU. What applies the policy explains better what is
            in its way, so that its call runs all the same, unless there was no room in time.
        number: its number in the ledger.
        snapshot: the GPUs, as they were last seen for it.
        names: the program behind each pid, for the text of a refusal.
    """

    policy: Policy
    gpus: int | None = None
    wanted: Callable[[], bool] = lambda: True
    waiting: Message | str = ""
    wait: Wait = field(default_factory=lambda: Wait(show=bool, job=True))
    for_all: bool = False
    number: int = 0
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(time=0.0))
    names: ProcessNames = field(default_factory=ProcessNames)

    def devices(self, here: Policy, snapshot: Snapshot) -> tuple[Device, ...] | None:
        """Return the GPUs to choose from under this process's policy `here`; None if there is no GPU to share out."""
        if self.for_all:
            found = tuple(seen(here, self.policy, snapshot))
            waits = self.wait.limit is not None and fit.problems(found)  # a GPU may have no room for a context
            return tuple(device for device in found if device.limits) or (found if waits else None)
        devices = candidates(here, self.policy, snapshot)
        if not devices and self.gpus is not None and snapshot.error:
            text = msg("{gpus} for each call cannot be had.", gpus=allocation.gpu_count(self.gpus))
            raise Refused(paragraph((text, snapshot.error)), verdict=NOT_STARTED)
        return devices if devices or self.gpus is not None else None

    def alternatives(self, snapshot: Snapshot) -> Iterator[tuple[Policy, tuple[Device, ...] | Refused | None]]:
        """Yield this process's policy and its fallbacks, each with its `devices`, or why there can be none."""
        for here in nearest_first(snapshot):
            try:
                yield here, self.devices(here, snapshot)
            except Refused as error:
                if self.wait.limit is not None and not isinstance(error, TooLate):
                    asked, anew = here.then(self.policy), engine.anew(snapshot)
                    error.retryable = engine.attainable(asked, "tensorflow", snapshot, anew)
                yield here, error


class Leases:
    """The leases that this process's calls have now. Thread-safe.

    Args:
        ledger: where these leases and the claims of other processes are written.
    """

    def __init__(self, ledger: ClaimLedger) -> None:
        self._ledger = ledger
        self._looking = threading.Lock()
        self._seen = (-1, Snapshot(time=0.0))

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
            with self._ledger.transaction() as state:
                if state.ended == ended:  # else the snapshot has, as if others', what a call held that ended meanwhile
                    leased = _others(state)
                    break

        def room(here: Policy) -> int | None:
            devices = LeaseRequest(policy, gpus).devices(here, snapshot)
            if devices is None:
                return None
            allocation.choose(devices, held(snapshot), leased, gpus or 1, lambda: names(snapshot))
            return allocation.capacity(devices, leased, gpus or 1)

        return first(functools.partial(room, here) for here in nearest_first(snapshot))

    @contextlib.contextmanager
    def lease(self, request: LeaseRequest) -> Iterator[Lease]:
        """Lease GPUs for a call until the end of the block; wait while our other calls are in the way.

        Raises:
            Refused: other programs are in the way, or the driver does not answer.
            Abandoned: it is no longer wanted.
        """
        with self._ledger.queued("call") as request.number:
            try:
                with request.wait:
                    policy, devices = self._take(request)
            except Refused as error:
                self._ledger.note_wanted(error.retryable)
                if request.wait.limit is not None or not request.for_all:
                    raise
                policy, devices = engine.inherited(request.snapshot).then(request.policy), ()
                self._ledger.end(request.number)  # it runs without GPUs of its own, and no call waits behind it
            yield Lease(policy, request.snapshot, devices, number=request.number if devices else None)

    def forget(self) -> None:
        """Forget in a fork of this process that a thread of it looks at the GPUs."""
        self._looking = threading.Lock()

    def _take(self, request: LeaseRequest) -> tuple[Policy, tuple[Device, ...]]:
        """Return the policy and the GPUs for a request; wait for them while our other calls are in the way."""
        since = time.time()
        while request.wanted():
            refused: Refused | None = None
            ended, request.snapshot = self._look(since)
            since = time.time() - _FRESH
            alternatives = list(request.alternatives(request.snapshot))  # asking CUDA for them may take a while
            try:
                with self._ledger.transaction() as state:
                    if state.ended != ended:  # the snapshot has, as if others', what a call held that ended meanwhile
                        continue
                    try:
                        found = first(functools.partial(self._found, state, request, *one) for one in alternatives)
                    except Refused as error:
                        if request.wait.limit is None or not error.retryable:
                            raise
                        found, refused = None, error
                    if found is not None:
                        return found
                    changes = state.changes
            except Unnamed:
                request.names.found = names(request.snapshot)
                continue
            pause = request.wait.go_on(refused or Refused(request.waiting, verdict=NOT_STARTED))
            self._wait(changes, request, pause if refused else _AGAIN)
            since, request.names = (time.time() if refused else since), ProcessNames()
        raise Abandoned

    def _found(
        self, state: LedgerState, request: LeaseRequest, here: Policy, devices: tuple[Device, ...] | Refused | None
    ) -> tuple[Policy, tuple[Device, ...]] | None:
        """Return the policy and the GPUs that a call gets now under this process's policy `here`; None if it waits.

        What it has, or needs, is written into the ledger.

        Raises:
            Refused: it cannot have what it asks for.
        """
        together = here.then(request.policy)
        if isinstance(devices, Refused):
            if devices.retryable:
                is_first(state, request.number, devices.retryable)  # who comes later waits behind it
            raise devices
        if devices is None:
            state.drop(request.number)
            return together, ()
        goes = is_first(state, request.number, [key(device.gpu) for device in devices])
        memory, count = held(request.snapshot), len(devices) if request.for_all else request.gpus or 1
        chosen = allocation.choose(devices, memory, _others(state), count, request.names)
        if chosen is None or not goes:
            return None
        had = {key(device.gpu): size(device) for device in chosen}
        known = tuple(sorted(memory.strangers))
        state.put(replace(state.claims[request.number], requested=(), had=had, known=known))
        return together if request.for_all else allocation.resolve(together, chosen), chosen

    def _look(self, since: float) -> tuple[int, Snapshot]:
        """Return how many leases had ended, and the GPUs as they were then or later, and not before `since`."""
        with self._looking:
            with self._ledger.transaction() as state:
                ended = state.ended
            if self._seen[0] != ended or self._seen[1].time < since:
                self._seen = (ended, see())
            return self._seen

    def _wait(self, changes: int, request: LeaseRequest, seconds: float) -> None:
        """Wait until something has changed in the ledger, or the call is no longer wanted; so long at the most."""
        until = time.monotonic() + seconds
        while request.wanted() and time.monotonic() < until:
            time.sleep(TICK)
            with self._ledger.transaction() as state:
                state.change(request.number, seen=time.monotonic())
                if state.changes != changes:
                    return


LEASES = Leases(LEDGER)
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

    devices = (allocation.for_isolated_call(device) for device in seen(here, policy, snapshot))
    return tuple(allocation.capped_to_free(device) if may_be_less(device) else device for device in devices)


def seen(here: Policy, policy: Policy, snapshot: Snapshot) -> Iterator[Device]:
    """Yield the same GPUs with what a process takes that applies the policy as written: a percentage is of its pool.

    Raises:
        Refused: as `candidates` does.
    """
    kernel = engine.anew(snapshot)
    resolved = resolve(here, policy, snapshot, kernel)
    if resolved.choice is None and DEVICES not in kernel.outside and any(gpu.mig for gpu in snapshot.gpus):
        # CUDA shows a process one instance: any, if named.
        resolved = shares(here, policy, [str(gpu.uuid) for gpu in snapshot.gpus if not gpu.mig], snapshot, kernel)
    return iter([device for device in resolved.devices if not is_skipped(device.gpu, resolved.seen, kernel)])


def see() -> Snapshot:
    """Look at the GPUs; give a driver that does not answer a second, longer time.

    Raises:
        Refused: it does not answer. That there is no GPU is an answer.
    """
    snapshot = look()
    if snapshot.error and not snapshot.absent:
        snapshot = look(_SECOND_TIMEOUT)
    if snapshot.error and not snapshot.absent:
        unread = paragraph(("The driver did not report which GPUs are free.", snapshot.error))
        raise Refused(join_lines((unread, "Calls that need none run with gpus=0.")), verdict=NOT_STARTED)
    return snapshot


def held(snapshot: Snapshot) -> ProcessMemory:
    """Return what each process holds; pids that do not exist here belong to another namespace."""
    return ProcessMemory(snapshot.processes, frozenset(missing(row.pid for row in snapshot.processes)))


def _others(state: LedgerState) -> list[Claim]:
    """Return what all calls have, but those that this process runs in: it may use what these have."""
    ours = family() if process_kind.in_worker else frozenset()
    return [one for one in state.call_claims() if one.pid not in ours]
