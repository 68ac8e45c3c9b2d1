"""A driver and its workers, made up: each call may fail, hang, or lose its worker, before or after it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.sizes import GIB, MIB
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.parking.driver import OUT_OF_MEMORY, RESTORE, DriverError
from tfgpu_magic.parking.driver_worker import Died
from tfgpu_magic.parking.states import CudaState

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
    """The made-up driver, which knows this process alone.

    Attributes:
        state: the process's state.
        others: bytes that others hold.
        taken: bytes that the placeholder holds.
        error: why there are no figures.
        kept: bytes that are free by the figures, and are not given.
        script: what becomes of the next calls, by the call's number.
        calls: every call that was made.
        restored_without_room: whether a restore was tried without a placeholder, or without its room.
        at: called before each call.
        patience: how long each question for the state was waited for, in seconds.
    """

    state: CudaState = CudaState.RUNNING
    others: int = 0
    taken: int = 0
    error: str | None = None
    kept: int = 0
    script: dict[int, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    restored_without_room: bool = False
    at: Callable[[int, str], None] = lambda *_: None
    patience: list[float] = field(default_factory=list)

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
        """Make a call."""
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
    """A worker of the made-up driver."""

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
