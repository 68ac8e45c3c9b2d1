"""One process's GPU state: where it is, the worker that moves it, and how it is set right when a call had no known end.

The process is this one. It runs on while its state is away, so it needs no record: each phase is set before the call
that it names, and `set_right` does what is to be done when that call's worker has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tfgpu_magic.model.snapshot import Snapshot
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.driver import CHECKPOINT, DISK, RESTORE, DriverError
from tfgpu_magic.parking.driver_worker import TROUBLES, Died, DriverWorker
from tfgpu_magic.parking.messages import Progress
from tfgpu_magic.parking.reported import ParkedProcess
from tfgpu_magic.parking.states import UNSETTLED, CudaState, Phase, reconcile

HANGS, SILENT = "hangs", "unanswered"
"""Why a process is not set right for now: a call for it hangs, the driver did not answer."""
PLANNED_RATE = 1e9  # bytes a second that are planned for where nothing was measured yet: a slow host's

_PR_SET_PTRACER = 0x59616D61
_POLL = 0.05  # seconds between two looks whether something is still wanted
_LATER = 2.0  # seconds between two looks for room, at most: `lease_file.ABSENT` is when a turn is lost
_AWAY = frozenset({Phase.PARKED, Phase.RESTORING, Phase.UNLOCKING})
_COPIED = frozenset({Phase.CHECKPOINTING, Phase.RESTORING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds that each call may take."""

    look: float = 15.0  # for the figures of all GPUs
    state: float = 5.0  # for a state, which is not answered while a process is copied, or an answer that is due
    lock: float = 10.0  # for what a process has submitted to the GPU
    copy: float = 30.0  # for a copy of nothing, and all else that moves nothing
    slowest: float = 1e8  # bytes a second that a copy has at least
    between: float = 0.5  # between two looks while somebody waits for room, at first

    def copying(self, size: int) -> float:
        """Return the seconds for a copy of so many bytes."""
        return self.copy + size / self.slowest

    def waiting(self, waited: float) -> float:
        """Return the seconds until the next look of who has waited so long: it may be days."""
        return min(max(self.between, waited / 60), _LATER)


@dataclass(frozen=True, slots=True)
class Asker:
    """Who has asked for a transfer."""

    tell: Callable[[Progress], object] = lambda _: None  # takes each progress
    wanted: Callable[[], bool] = lambda: True  # whether it still is; a copy that is begun is ended all the same

    def pause(self, seconds: float) -> None:
        """Wait, unless it is called off meanwhile."""
        end = time.monotonic() + seconds
        while self.wanted() and (left := end - time.monotonic()) > 0:
            time.sleep(min(_POLL, left))


NOBODY = Asker()  # whom nobody has to tell anything, and who never calls off


class GpuState:
    """The state of one process; `changed` takes what is known of it after each change, None where it was never away."""

    def __init__(
        self,
        pid: int,
        changed: Callable[[ParkedProcess | None], None] = lambda _: None,
        start: Callable[[], DriverWorker] = DriverWorker,
        timeouts: Timeouts = Timeouts(),  # it is frozen
    ) -> None:
        self.pid, self.timeouts = pid, timeouts
        self.known: ParkedProcess | None = None  # until it is parked for the first time
        self.file: int | None = None  # the descriptor of the file that it is in, or goes to; None in host memory
        self._rates: dict[str, float] = {}  # bytes a second to and from host memory, when it was moved last
        self._changed, self._start = changed, start
        self._worker: DriverWorker | None = None
        self._turn = threading.RLock()
        self._attended = False
        self._after = contextlib.ExitStack()
        os.register_at_fork(after_in_child=self._close_file)

    @contextlib.contextmanager
    def alone(self, asker: Asker) -> Iterator[bool]:
        """Let nothing else be done to the process meanwhile; give False where that is called off before it begins."""
        while not (held := self._turn.acquire(timeout=_POLL)) and asker.wanted():
            pass
        try:
            yield held
        finally:
            if held:
                if not self.away:  # as long as it is, a worker is kept
                    self.rest()
                self._turn.release()

    @property
    def phase(self) -> Phase | None:
        """How far it has come; None of one that was never away."""
        known = self.known  # which another thread may change
        return None if known is None else known.phase

    @property
    def away(self) -> bool:
        """Whether the state is away, or may be."""
        return self.known is not None and self.known.parked

    @property
    def unsettled(self) -> bool:
        """Whether it is not known what became of the last call."""
        return self.phase in UNSETTLED

    # --- what is known ---

    def move(self, phase: Phase, **changes: object) -> ParkedProcess:
        """Note that the process is in another phase from now on, and return what is known of it."""
        before = self.known or ParkedProcess(pid=self.pid, phase=phase, since=0.0)
        since = before.since if phase in _AWAY and before.phase in _AWAY else time.time()
        settled = {"trouble": "", "wanted": False}
        entry = replace(before, phase=phase, since=since, **{**settled, **changes})  # type: ignore[arg-type]
        self._set(entry)
        return entry

    def note(self, **changes: object) -> None:
        """Note why a phase does not go on, or whether somebody waits for the return."""
        if self.known is not None and (changed := replace(self.known, **changes)) != self.known:  # type: ignore[arg-type]
            self._set(changed)

    def _set(self, known: ParkedProcess | None) -> None:
        self.known = known
        if self.phase in (None, Phase.BACK, Phase.FAILED):
            self._close_file()
        self._changed(known)
        if not self.unsettled:
            self._after.close()

    def _close_file(self) -> None:
        """Close the file, if there is one: with the last descriptor of it the system takes it away."""
        file, self.file = self.file, None
        if file is not None:
            os.close(file)

    # --- the worker's calls ---

    def worker(self) -> DriverWorker:
        """Return the worker, or start another one if it has ended; what may be raised are `TROUBLES`."""
        if self._worker is not None and not self._worker.usable:
            self.rest()
            if self._worker is not None:  # it was given up, and may still be in its call
                raise Died(HANGS)
        if self._worker is None:
            self._worker = self._start()
        return self._worker

    def rest(self) -> None:
        """Have the worker end, unless it hangs."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None if self._worker.ended else self._worker

    def state(self, seconds: float | None = None) -> CudaState:
        """Ask for the process's state; what may be raised are `TROUBLES`."""
        return self.worker().state(self.pid, seconds=seconds or self.timeouts.state)

    def copy(self, worker: DriverWorker, call: Literal["checkpoint", "restore"], *of_file: object) -> float:
        """Have a worker copy the process's memory to its file, if it has one, or to host memory, or back from there.

        A call that copies to a file takes more arguments, `of_file`. A worker that fails in what it has begun with one
        is ended: the driver takes that back. Return the seconds that it took; what may be raised are `TROUBLES`.
        """
        assert self.known is not None  # noqa: S101  # it has begun
        size, to_disk = self.known.size, self.file is not None
        file = (f"/proc/{self.pid}/fd/{self.file}", *of_file) if to_disk else ()
        begun = time.monotonic()
        try:
            if to_disk:
                _let_trace(worker.pid)
            worker.call(call, self.pid, *file, seconds=self.timeouts.copying(size))
        except DriverError as error:
            if to_disk and error.call not in (CHECKPOINT, RESTORE):
                worker.give_up()
            raise
        finally:
            if to_disk:
                _let_trace(0)
        took = time.monotonic() - begun
        if not to_disk:
            self._rates[call] = size / max(took, 1e-3)
        return took

    def seconds(self, call: Literal["checkpoint", "restore"], size: int) -> float:
        """Return how long so many bytes take to host memory or back, as long as out where that alone was measured."""
        return size / (self._rates.get(call) or self._rates.get("checkpoint") or PLANNED_RATE)

    def look(self) -> Snapshot:
        """Return the GPUs as they are now; what may be raised are `TROUBLES`."""
        return Snapshot.from_json(self.worker().call("snapshot", seconds=self.timeouts.look))

    # --- set right ---

    def settle(self) -> ParkedProcess | None:
        """Set the process right, as far as that can be done in bounded time, and return what is known of it then."""
        if self.unsettled:
            try:
                self.set_right()
            except TROUBLES as trouble:
                self.note(trouble=HANGS if isinstance(trouble, Died) and trouble.call == HANGS else SILENT)
        return self.known

    def when_settled(self, do: Callable[[], object]) -> None:
        """Do something as soon as it is known what became of the last call; whoever says so has the turn."""
        if self.unsettled:
            self._after.callback(do)
        else:
            do()

    def attend(self) -> None:
        """Have a thread set the process right as soon as that can be done, where there is something to be set right."""

        def work() -> None:
            pause = 1.0
            while self._attended:
                time.sleep(pause)
                pause = min(2 * pause, 60.0)
                with self.alone(NOBODY):
                    with contextlib.suppress(Exception):  # whatever it is, it is tried again
                        self.settle()
                    self._attended = self.unsettled

        if self.unsettled and not self._attended:
            self._attended = True
            threading.Thread(target=work, name="tfgpu_magic-settle", daemon=True).start()

    def settled(self, asker: Asker, seconds: float | None = None) -> None:
        """Wait until the process is set right, for so many seconds at most, or for as many as a copy takes."""
        begun = time.monotonic()
        while (entry := self.settle()) is not None and self.unsettled and asker.wanted():
            if time.monotonic() - begun > (seconds or self.timeouts.copying(entry.size)):
                break
            asker.tell(Progress(step="settles", size=entry.size))
            asker.pause(self.timeouts.between)

    def set_right(self) -> None:
        """Do what `states.reconcile` says; what may be raised are `TROUBLES`.

        The driver answers nothing while it copies: so it has as long for its answer, and is asked once.
        """
        entry = self.known
        assert entry is not None  # noqa: S101  # it has begun
        found = self.state(self.timeouts.copying(entry.size) if entry.phase in _COPIED else None)
        if found is CudaState.LOCKED:
            self.worker().call("unlock", self.pid, seconds=self.timeouts.copy)
            found = CudaState.RUNNING
        after = reconcile(entry.phase, found, returned=entry.returns > 0)
        if after is None:
            self._set(None)
        elif after in UNSETTLED:
            self.note(trouble=SILENT)
        else:
            came_back = after is Phase.BACK and entry.phase not in (Phase.LOCKING, Phase.BACK)
            self.move(after, returns=entry.returns + came_back)


def _let_trace(pid: int) -> None:
    """Let a child of this process have its memory mapped, where the system lets only ancestors; 0 is nobody.

    Source: the kernel's documentation of Yama. Whether the driver goes by it, nobody has told.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def refusal(trouble: DriverError | Died) -> why.Refusal:
    """Return the refusal for what a call ended in."""
    if not isinstance(trouble, DriverError):
        return why.UNANSWERED(trouble.call)
    if trouble.call == DISK:
        return why.DISK_FAILED(os.strerror(trouble.code))
    return why.DECLINED(trouble.call, trouble.code)
