"""The room on GPUs that processes need to come back: who waits for it, whose turn it is, and who has claimed it.

It is written into the table of leases, so that isolated calls and those who come back keep one order among them, and
policies count what is claimed. A claim is short: it is made when the room is seen to be free, and ends when the process
holds its memory itself, when the room was taken by somebody else meanwhile, or with the helper.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.memory import LEAST_LIMIT, context_bytes
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import allocation
from tfgpu_magic.isolate.claims import Claim, Holding, Need
from tfgpu_magic.isolate.lease_file import ABSENT, Entry, LeaseTable
from tfgpu_magic.monitor.pids import elsewhere
from tfgpu_magic.parking import checks
from tfgpu_magic.parking.messages import Room

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgpu_magic.isolate.lease_file import Page
    from tfgpu_magic.monitor.snapshot import Gpu, Snapshot
    from tfgpu_magic.parking import record


@dataclass(slots=True, eq=False)
class Place:
    """A process's place among those who wait.

    Attributes:
        entry: the process.
        ticket: its number; who came earlier has a smaller one.
        claimed: whether it has its room.
        blocked: whether it was seen that others hold what it needs, and not only those of ours who come first.
    """

    entry: record.Entry
    ticket: int
    claimed: bool = False
    blocked: bool = False


class Waiting:
    """Those who wait for room, or have claimed it.

    Args:
        table: where that is written.
    """

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._places: dict[int, Place] = {}

    def enter(self, entry: record.Entry) -> Place:
        """Return a process's place, behind all that are there."""
        with self._table.turn() as page:
            place = Place(entry, page.number())
            self._write(page, place)
        self._places[place.ticket] = place
        return place

    def leave(self, place: Place) -> None:
        """Give a place up, and what was claimed with it."""
        self._places.pop(place.ticket, None)
        with self._table.turn() as page:
            page.drop(place.ticket)

    def claim(self, place: Place, snapshot: Snapshot) -> bool:
        """Claim the room for a process, if it is free and its turn.

        Args:
            place: its place.
            snapshot: the GPUs as they are now.
        """
        devices = _devices(place.entry, snapshot.gpus)
        with self._table.turn() as page:
            if devices is None:
                place.blocked = True
                self._write(page, place)
                return False
            place.blocked = not all(_fits(device) for device in devices)
            found = None if self._occupied(place) else self._chosen(page, place, devices, snapshot)
            place.claimed = found is not None
            self._write(page, place, devices)
            return place.claimed

    def unclaim(self, place: Place) -> None:
        """Give up what was claimed, and wait on."""
        place.claimed = False
        with self._table.turn() as page:
            self._write(page, place)

    def ahead(self, place: Place) -> list[record.Entry]:
        """Return the processes that come back before another one on its GPUs, as far as they do not wait for others."""
        ours = _gpus(place.entry)
        return [
            one.entry
            for one in self._places.values()
            if one is not place
            and ours & _gpus(one.entry)
            and (one.claimed or (one.ticket < place.ticket and not one.blocked))
        ]

    def _occupied(self, place: Place) -> bool:
        """Tell whether another process comes back to one of the same GPUs now."""
        return any(one.claimed and _gpus(one.entry) & _gpus(place.entry) for one in self._places.values())

    def _chosen(
        self, page: Page, place: Place, devices: tuple[Device, ...], snapshot: Snapshot
    ) -> tuple[Device, ...] | None:
        now = time.monotonic()
        claims = [claim for ticket, one in page.entries.items() if ticket != place.ticket for claim in one.claims]
        theirs = [claim for claim in claims if claim.pid != place.entry.pid]  # an isolated call's own lease
        ahead = [
            one.need
            for ticket, one in page.entries.items()
            if ticket < place.ticket and one.need is not None and not one.claims and now - one.seen < ABSENT
        ]
        holding = Holding(snapshot.processes, elsewhere(row.pid for row in snapshot.processes))
        try:
            return allocation.choose_in_turn(devices, holding, theirs, len(devices), ahead, snapshot.gpus)
        except Refused:  # others than our calls hold it
            return None

    def _write(self, page: Page, place: Place, devices: Sequence[Device] | None = ()) -> None:
        """Write what a process waits for, or has claimed."""
        entry = page.entries.get(place.ticket) or Entry(
            ticket=place.ticket, slot=self._table.slot, seen=0.0, came=time.time()
        )
        entry = replace(entry, slot=self._table.slot, seen=time.monotonic())
        if place.claimed:
            since = page.number()
            # Without `began`: the claim ends with the helper, whereas the process lives on.
            claims = tuple(
                Claim(held.gpu, checks.placeholder(held.size), pid=place.entry.pid, since=since)
                for held in place.entry.held
            )
            page.put(replace(entry, need=None, claims=claims))
        elif devices:
            page.put(replace(entry, need=Need.of(place.ticket, devices, len(devices)), claims=()))
        else:
            page.put(replace(entry, claims=()))


def rooms(entry: record.Entry, snapshot: Snapshot) -> tuple[Room, ...]:
    """Return what a process needs of each of its GPUs to come back, and who holds what there."""
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    found = []
    for held in entry.held:
        gpu = gpus.get(held.gpu)
        if gpu is None:
            found.append(Room(held.gpu, "", checks.placeholder(held.size), None))
            continue
        here = sorted(
            ((row.pid, row.held) for row in snapshot.processes if row.gpu == gpu.label), key=lambda row: -(row[1] or 0)
        )
        found.append(Room(held.gpu, gpu.label, checks.needed(held.size, gpu), gpu.free, tuple(here)))
    return tuple(found)


def _devices(entry: record.Entry, gpus: Sequence[Gpu]) -> tuple[Device, ...] | None:
    """Return the GPUs of a process with what it needs of each; None if one is not there, or cannot be used."""
    there = {gpu.uuid: gpu for gpu in gpus if not gpu.lost and gpu.free is not None and gpu.total is not None}
    if not all(held.gpu in there for held in entry.held):
        return None
    return tuple(_device(there[held.gpu], held.size) for held in entry.held)


def _device(gpu: Gpu, size: int) -> Device:
    # What fits is a limit and a context beside it: together they are what must be free.
    limit = checks.needed(size, gpu) - context_bytes(gpu.total or 0)
    return Device(gpu=gpu, limits=(max(limit, LEAST_LIMIT),))


def _fits(device: Device) -> bool:
    return (device.gpu.free or 0) >= sum(device.limits) + context_bytes(device.gpu.total or 0)


def _gpus(entry: record.Entry) -> set[str]:
    return {held.gpu for held in entry.held}
