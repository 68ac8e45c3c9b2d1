"""The room on GPUs that this process needs to come back: whose turn it is, and what is claimed.

It is written into the table of leases, so that isolated calls and those who come back keep one order among them, and
policies count what is claimed. A claim is short: it is made when the room is seen to be free, and ends when the process
holds its memory itself, when the room was taken by somebody else meanwhile, or with the process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from tfgpu_magic.errors import Refused
from tfgpu_magic.leases import allocation
from tfgpu_magic.leases.allocation import LeasedGpu, ProcessMemory
from tfgpu_magic.leases.lease_file import LeaseEntry, LeaseTable, Page
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.model.snapshot import Snapshot
from tfgpu_magic.monitor.owners.pids import elsewhere
from tfgpu_magic.parking import checks
from tfgpu_magic.parking.messages import Room
from tfgpu_magic.policy.fit import Device


class Place:
    """The place of this process among those who wait, behind all that are there, for as much as it has held."""

    def __init__(self, table: LeaseTable, pid: int, held: Sequence[HeldMemory]) -> None:
        self._table, self._pid, self._held = table, pid, held
        self._gpus = {one.gpu for one in held}
        self._came = time.time()
        self._blocked = False  # others than our calls hold what it needs, so that nobody waits behind it
        self._free_since = math.inf
        with table.turn() as page:
            self._ticket = page.number()
            self._write(page, claimed=False)

    def leave(self) -> None:
        """Give the place up, and what was claimed with it."""
        with self._table.turn() as page:
            page.drop(self._ticket)

    def claim(self, snapshot: Snapshot) -> bool:
        """Claim the room, if it is free by a snapshot of now, and its turn; tell whether it is claimed."""
        with self._table.turn() as page:
            free = self._is_free(page, snapshot)
            self._free_since = min(self._free_since, time.monotonic()) if free else math.inf
            behind = page.waits_behind(self._ticket, self._gpus, self._free_since)  # an earlier one looks first
            taken = any(_comes_back(one, self._gpus) for one in self._others(page))  # each GPU has one at a time
            claimed = free and not behind and not taken
            self._write(page, claimed=claimed)
            return claimed

    def unclaim(self) -> None:
        """Give up what was claimed, and wait on."""
        with self._table.turn() as page:
            self._write(page, claimed=False)

    def ahead(self) -> tuple[int, ...]:
        """Return the processes that come before on these GPUs, as far as they do not wait for others."""
        with self._table.turn() as page:
            before = [
                one
                for one in self._others(page)
                if _comes_back(one, self._gpus) or page.comes_before(one, self._ticket, self._gpus)
            ]
            pids = (next((each.pid for each in one.leased), None) or self._table.pid(one) for one in before)
            return tuple(dict.fromkeys(pid for pid in pids if pid is not None))

    def _others(self, page: Page) -> list[LeaseEntry]:
        return [one for number, one in page.entries.items() if number != self._ticket]

    def _is_free(self, page: Page, snapshot: Snapshot) -> bool:
        """Tell whether the room is free; note whether others than our calls hold it."""
        there = {one.uuid: one for one in snapshot.gpus if not one.lost and None not in (one.free, one.total)}
        self._blocked = not self._gpus <= there.keys()
        if self._blocked:
            return False
        # What fits is a limit and a context beside it, as a placeholder has.
        devices = [Device(gpu=there[one.gpu], limits=(checks.placeholder(one.size),)) for one in self._held]
        theirs = [claim for one in self._others(page) for claim in one.leased]
        held = ProcessMemory(snapshot.processes, elsewhere(row.pid for row in snapshot.processes))
        try:
            return allocation.choose(devices, held, theirs, len(devices)) is not None
        except Refused:
            self._blocked = True
            return False

    def _write(self, page: Page, *, claimed: bool) -> None:
        """Write what the process waits for, or has claimed."""
        # Without `began`: the claim is no call's, and ends with this process's place.
        claims = tuple(LeasedGpu(one.gpu, checks.placeholder(one.size), pid=self._pid) for one in self._held)
        page.put(
            LeaseEntry(
                number=self._ticket,
                slot=self._table.slot,
                seen=time.monotonic(),
                came=self._came,
                requested=() if claimed else tuple(sorted(self._gpus)),
                held_by_others=self._blocked,
                leased=claims if claimed else (),
            )
        )


def _comes_back(entry: LeaseEntry, gpus: set[str]) -> bool:
    """Tell whether an entry is the claim of a process that comes back to one of these GPUs."""
    return any(one.pid is not None and one.began is None and one.gpu in gpus for one in entry.leased)


def rooms(needs: Sequence[HeldMemory], snapshot: Snapshot) -> tuple[Room, ...]:
    """Return what is needed of each GPU to come back, and who holds what there."""
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    found = []
    for held in needs:
        if (gpu := gpus.get(held.gpu)) is None:
            found.append(Room(held.gpu, "", checks.placeholder(held.size), None))
            continue
        here = [(row.pid, row.held) for row in snapshot.processes if row.gpu == gpu.label]
        largest = tuple(sorted(here, key=lambda row: -(row[1] or 0)))
        found.append(Room(held.gpu, gpu.label, checks.needed(held.size, gpu), gpu.free, largest))
    return tuple(found)
