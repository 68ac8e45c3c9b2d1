"""The room on GPUs that processes need to come back: who waits for it, whose turn it is, and who has claimed it.

It is written into the table of leases, so that isolated calls and those who come back keep one order among them, and
policies count what is claimed. A claim is short: it is made when the room is seen to be free, and ends when the process
holds its memory itself, when the room was taken by somebody else meanwhile, or with the parker.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgpu_magic.errors import Refused
from tfgpu_magic.leases import allocation
from tfgpu_magic.leases.allocation import LeasedGpu, ProcessMemory
from tfgpu_magic.leases.lease_file import LeaseEntry, LeaseTable
from tfgpu_magic.monitor.owners.pids import elsewhere
from tfgpu_magic.parking import checks
from tfgpu_magic.parking.messages import Room
from tfgpu_magic.policy.fit import Device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgpu_magic.leases.lease_file import Page
    from tfgpu_magic.model.snapshot import Gpu, Snapshot
    from tfgpu_magic.parking.record import ParkedProcess


@dataclass(slots=True, eq=False)
class ParkerPlace:
    """A process's place among those who wait.

    Attributes:
        entry: the process.
        ticket: its number; who came earlier has a smaller one.
        claimed: whether it has its room.
        held_by_others: whether others than our calls hold what it needs, so that nobody waits behind it.
    """

    entry: ParkedProcess
    ticket: int
    claimed: bool = False
    held_by_others: bool = False


class Waiting:
    """Those who wait for room, or have claimed it.

    Args:
        table: where that is written.
    """

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._places: dict[int, ParkerPlace] = {}

    def enter(self, entry: ParkedProcess) -> ParkerPlace:
        """Return a process's place, behind all that are there."""
        with self._table.turn() as page:
            place = ParkerPlace(entry, page.number())
            self._write(page, place)
        self._places[place.ticket] = place
        return place

    def leave(self, place: ParkerPlace) -> None:
        """Give a place up, and what was claimed with it."""
        self._places.pop(place.ticket, None)
        with self._table.turn() as page:
            page.drop(place.ticket)

    def claim(self, place: ParkerPlace, snapshot: Snapshot) -> bool:
        """Claim the room for a process, if it is free and its turn.

        Args:
            place: its place.
            snapshot: the GPUs as they are now.
        """
        with self._table.turn() as page:
            for one in self._places.values():
                if one.ticket < place.ticket and not one.claimed:
                    self._is_free(page, one, snapshot)
                    self._write(page, one)
            free = self._is_free(page, place, snapshot) and not page.waits_behind(place.ticket, _gpus(place.entry))
            gpus = _gpus(place.entry)  # to none of which another process may come back now
            place.claimed = free and not any(one.claimed and _gpus(one.entry) & gpus for one in self._places.values())
            self._write(page, place)
            return place.claimed

    def unclaim(self, place: ParkerPlace) -> None:
        """Give up what was claimed, and wait on."""
        place.claimed = False
        with self._table.turn() as page:
            self._write(page, place)

    def ahead(self, place: ParkerPlace) -> list[ParkedProcess]:
        """Return the processes that come back before another one on its GPUs, as far as they do not wait for others."""
        ours = _gpus(place.entry)
        return [
            one.entry
            for one in self._places.values()
            if one is not place
            and ours & _gpus(one.entry)
            and (one.claimed or (one.ticket < place.ticket and not one.held_by_others))
        ]

    def _is_free(self, page: Page, place: ParkerPlace, snapshot: Snapshot) -> bool:
        """Tell whether the room for a process is free; note whether others than our calls hold it."""
        devices = _devices(place.entry, snapshot.gpus)
        theirs = [claim for ticket, one in page.entries.items() if ticket != place.ticket for claim in one.leased]
        held = ProcessMemory(snapshot.processes, elsewhere(row.pid for row in snapshot.processes))
        try:
            place.held_by_others = devices is None
            return devices is not None and allocation.choose(devices, held, theirs, len(devices)) is not None
        except Refused:
            place.held_by_others = True
            return False

    def _write(self, page: Page, place: ParkerPlace) -> None:
        """Write what a process waits for, or has claimed."""
        entry = page.entries.get(place.ticket)
        # Without `began`: the claim ends with the parker, whereas the process lives on.
        claims = tuple(
            LeasedGpu(held.gpu, checks.placeholder(held.size), pid=place.entry.pid)
            for held in place.entry.held
            if place.claimed
        )
        page.put(
            LeaseEntry(
                number=place.ticket,
                slot=self._table.slot,
                seen=time.monotonic(),
                came=time.time() if entry is None else entry.came,
                requested=() if claims else tuple(sorted(_gpus(place.entry))),
                held_by_others=place.held_by_others,
                leased=claims,
            )
        )


def rooms(entry: ParkedProcess, snapshot: Snapshot) -> tuple[Room, ...]:
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


def _devices(entry: ParkedProcess, gpus: Sequence[Gpu]) -> tuple[Device, ...] | None:
    """Return the GPUs of a process with what it needs of each; None if one is not there, or cannot be used."""
    there = {gpu.uuid: gpu for gpu in gpus if not gpu.lost and gpu.free is not None and gpu.total is not None}
    if not all(held.gpu in there for held in entry.held):
        return None
    # What fits is a limit and a context beside it, as a placeholder has.
    return tuple(Device(gpu=there[held.gpu], limits=(checks.placeholder(held.size),)) for held in entry.held)


def _gpus(entry: ParkedProcess) -> set[str]:
    return {held.gpu for held in entry.held}
