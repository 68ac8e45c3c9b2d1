"""This process, which has no GPU, on a machine where it may be parked, and its state on a made-up driver."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.parking.made_up import Driver, Worker
from tests.sizes import GIB
from tfgpu_magic.leases.lease_file import LeaseTable
from tfgpu_magic.parking import checks, facts
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.gpu_state import NOBODY, Asker, GpuState, Timeouts
from tfgpu_magic.parking.messages import ParkOutcome
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.parking.transfers import Park, Unpark

IDLE = Inside()
QUICK = Timeouts(copy=0.2, slowest=1e12, between=0.01)


@contextmanager
def parkable() -> Iterator[None]:
    """Have a machine on which this process may be parked."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "machine"
        Path(f"{state}.nvidia-version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06\n")
        patch.setenv("TFGPU_SIMGPU", str(state))
        patch.setenv("TFGPU_MAGIC_DIR", str(Path(folder) / "board"))
        patch.setattr(facts, "host_room", lambda _: 64 * GIB)
        patch.setattr(facts, "children_on_driver", lambda _: ())
        patch.setattr(checks, "ARCHITECTURES", (os.uname().machine,))
        yield


class House:
    """The state of this process, on the made-up driver."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.table = driver, LeaseTable()
        self.state = GpuState(os.getpid(), start=lambda: Worker(driver), timeouts=QUICK)  # type: ignore[arg-type, return-value]

    def park(self, asker: Asker = NOBODY, inside: Inside = IDLE) -> ParkOutcome:
        return Park(self.state, inside, asker=asker).park()

    def unpark(self, asker: Asker = NOBODY) -> ParkOutcome:
        return Unpark(self.state, self.table, asker=asker).unpark()

    @property
    def phase(self) -> Phase | None:
        return None if self.state.known is None else self.state.known.phase
