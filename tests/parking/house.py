"""This process, without a GPU, where it may be parked, on a made-up driver: calls fail, hang, or lose their worker."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.sizes import GIB, MIB
from tfgpu_magic.leases.lease_file import LeaseTable
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.parking import checks, facts
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.driver import OUT_OF_MEMORY, RESTORE, DriverError
from tfgpu_magic.parking.driver_worker import Died
from tfgpu_magic.parking.gpu_state import NOBODY, Asker, GpuState, Timeouts
from tfgpu_magic.parking.messages import ParkOutcome
from tfgpu_magic.parking.states import CudaState, Phase
from tfgpu_magic.parking.transfers import Park, Unpark

WRONG_STATE = 401
TOTAL = 8 * GIB
HELD = 5 * GIB

CALLS = {
    "lock": (CudaState.RUNNING, CudaState.LOCKED),
    "checkpoint": (CudaState.LOCKED, CudaState.CHECKPOINTED),
    "restore": (CudaState.CHECKPOINTED, CudaState.LOCKED),
    "unlock": (CudaState.LOCKED, CudaState.RUNNING),
}
"""The state that each call needs, and the state that it leads to."""
EVENTS = ("died before", "died after", "hung before", "hung after", "declined", "ended after")
"""What may become of a call: whether it was made, and whether that was told; after the last one the worker ends."""


@dataclass
class Driver:
    """The made-up driver, which knows this process alone."""

    state: CudaState = CudaState.RUNNING
    others: int = 0  # bytes that others hold
    taken: int = 0  # bytes that the placeholder holds
    error: str | None = None  # why there are no figures
    kept: int = 0  # bytes that are free by the figures, and are not given
    script: dict[int, str] = field(default_factory=dict)  # what becomes of the next calls, by the call's number
    calls: list[str] = field(default_factory=list)  # every call that was made
    restored_without_room: bool = False  # whether that was tried without a placeholder, or without its room
    at: Callable[[int, str], None] = lambda *_: None  # called before each call
    patience: list[float] = field(default_factory=list)  # seconds that each question for the state was waited for

    @property
    def held(self) -> int:
        return HELD if self.state in (CudaState.RUNNING, CudaState.LOCKED) else 0

    def snapshot(self) -> str:
        if self.error is not None:
            return Snapshot(time=1.0, error=self.error).to_json()
        free = TOTAL - self.held - self.others - self.taken
        gpu = Gpu(index=0, uuid="GPU-0", total=TOTAL, reserved=0, used=TOTAL - free, free=free)
        rows = [Process(gpu="0", pid=os.getpid(), kind="C", held=self.held)] if self.held else []
        rows += [Process(gpu="0", pid=1, kind="C", held=self.others)] if self.others else []
        return Snapshot(time=1.0, driver="580.65.06", gpus=(gpu,), processes=tuple(rows), listed_at=1.0).to_json()

    def make(self, call: str, *arguments: Any) -> Any:
        if call == "snapshot":
            return self.snapshot()
        if call == "state":
            return self.state.value
        if call == "take":
            size = sum(arguments[0].values())
            if size + 256 * MIB > TOTAL - self.held - self.others - self.taken - self.kept:
                raise DriverError("cuMemAlloc_v2", OUT_OF_MEMORY)
            self.taken = size + 256 * MIB
        elif call == "let_go":
            self.taken = 0
        else:
            needed, after = CALLS[call]
            if self.state is not needed:
                raise DriverError(call, WRONG_STATE)
            if call == "restore":
                self.restored_without_room = self.restored_without_room or not self.taken
                self.taken = 0
                if TOTAL - self.others < HELD:
                    self.restored_without_room, self.state = True, CudaState.FAILED
                    raise DriverError(RESTORE, OUT_OF_MEMORY)
            self.state = after
        return None


class Worker:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.usable, self.ended = True, False

    def call(self, call: str, *arguments: Any, **_: float) -> Any:
        if self.ended:
            raise Died(call)
        driver, number = self._driver, len(self._driver.calls)
        event = driver.script.get(number, "")
        driver.at(number, call)
        driver.calls.append(call)
        if event == "declined" and call not in ("snapshot", "state", "let_go"):
            raise DriverError(RESTORE if call == "restore" else call, 801)
        if event.startswith(("died", "hung")):
            if event.endswith("after"):
                with contextlib.suppress(DriverError):
                    driver.make(call, *arguments)
            self.end()
            raise Died(call, hung=event.startswith("hung"))
        answer = driver.make(call, *arguments)
        if event == "ended after":
            self.end()
        return answer

    def state(self, _: int, *, seconds: float) -> CudaState:
        self._driver.patience.append(seconds)
        return CudaState(self.call("state", seconds=seconds))

    def end(self) -> None:
        self.usable, self.ended = False, True
        self._driver.taken = 0  # it goes with its process


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
        return self.state.phase
