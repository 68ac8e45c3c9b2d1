"""A helper without its process, on a machine where this process, which has no GPU, may be parked."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.parking.made_up import HELD, Driver, Workers, me
from tests.sizes import GIB
from tfgpu_magic.isolate import host_memory
from tfgpu_magic.leases.lease_file import LeaseTable
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.parking import checks, facts, record
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.driver_workers import OpenRequest, Timeouts
from tfgpu_magic.parking.messages import ParkOutcome, Request
from tfgpu_magic.parking.record import ParkingLedger
from tfgpu_magic.parking.room import Waiting
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.parking.transfers import Transfers

QUICK = Timeouts(copy=0.2, slowest=1e12, between=0.01)
PARK, UNPARK = Request(deed="park", inside=Inside()), Request(deed="unpark")
ADOPT = Request(deed="unpark", held=(HeldMemory("GPU-0", HELD),))


@contextmanager
def parkable() -> Iterator[None]:
    """Have a machine on which this process may be parked."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "machine"
        Path(f"{state}.nvidia-version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06\n")
        patch.setenv("TFGPU_SIMGPU", str(state))
        patch.setattr(host_memory, "untouched", lambda _: 64 * GIB)
        patch.setattr(facts, "children_on_driver", lambda _: ())
        patch.setattr(checks, "ARCHITECTURES", (os.uname().machine,))
        yield


class House:
    """The helper: a ledger, and operations on the made-up driver."""

    def __init__(self, driver: Driver, folder: str) -> None:
        self.driver = driver
        self.place = BoardDirectory(Path(folder))
        self.start()

    def start(self, timeouts: Timeouts = QUICK) -> None:
        """Begin as a helper does that finds what another has left."""
        self.ledger = ParkingLedger(self.place, record.read(self.place))
        self.waiting = Waiting(LeaseTable())
        self.operations = Transfers(self.ledger, Workers(self.driver), self.waiting, timeouts)  # type: ignore[arg-type]

    async def do(self, request: Request, asked: OpenRequest | None = None) -> ParkOutcome:
        return await asyncio.wait_for(self.operations.do(asked or OpenRequest(request, me())), 60)

    @property
    def phase(self) -> Phase | None:
        entry = self.ledger.entry(me())
        return None if entry is None else entry.phase

    def close(self) -> None:
        self.place.close()
