"""The caller's side of a call that makes way: when it is asked to, its parking, and its return when there is room.

The call itself says where, and waits (`parking.inside.making_way`). It is told to go on only when it is known that its
GPU state is there. Meanwhile what it has leased is suspended, so that others may have it.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfgpu_magic import host
from tfgpu_magic.errors import MonitorError, Refused
from tfgpu_magic.isolate import lease_reader
from tfgpu_magic.isolate.process import wire
from tfgpu_magic.isolate.process.order import AWAY, NO, POINT, YES
from tfgpu_magic.monitor.directory import BoardDirectory
from tfgpu_magic.monitor.parked import Parked
from tfgpu_magic.monitor.pids import lives
from tfgpu_magic.monitor.program_names import ISOLATED
from tfgpu_magic.parking import client
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.away import Followed
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.views import parking

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tfgpu_magic.isolate.process.forkserver_client import WorkerProcess
    from tfgpu_magic.isolate.process.wire import Message
    from tfgpu_magic.monitor.parked import ParkedState
    from tfgpu_magic.parking.checks import Inside
    from tfgpu_magic.parking.messages import Outcome, Progress
    from tfgpu_magic.parking.record import Entry

STAY = 60.0
"""Seconds that a call which is back goes on at least before it makes way by itself again."""
AGAIN_AFTER = 15.0
"""Seconds after which a call that could not be parked is asked again."""
PROMPT = 5.0
"""Seconds that `Way.park` waits for the call to come to a point."""
LOOK_EVERY = 0.5
"""Seconds between two looks, or attempts, while a call is away."""

_STEPS: dict[str, ParkedState] = {"waits": "waiting", "copies back": "restoring"}


class Way:
    """How a call makes way. Thread-safe.

    Attributes:
        offered: when it was last at a point where it can be parked, by the monotonic clock; None before the first.
        parked: how far its parking has come; None while it has its GPU state.
        away: whether it waits to be told that it may go on.
        seconds: how long it has been away, all times together.
        suspend: called with whether what it has leased is for others to have.
    """

    def __init__(self) -> None:
        self.offered: float | None = None
        self.parked: Parked | None = None
        self.away = False
        self.seconds = 0.0
        self.suspend: Callable[[bool], None] = lambda _: None
        self._changed = threading.Condition()
        self._kept = False  # it was asked for by its user, and stays parked until they say so
        self._refused = ""
        self._gone: Entry | None = None  # what the record said when its state went away
        self._left = 0.0
        self._suspended = False
        self._rests_until = float("-inf")

    def park(self) -> str:
        """Have the call parked at its next point, and kept so until `unpark`; return what has come of it.

        Raises:
            Refused: it cannot be parked.
        """
        if not _allowed():
            raise Refused(parking.off(), verdict="Not parked.")
        with self._changed:
            self._kept, self._refused = True, ""
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._refused or self._is_parked(), PROMPT)
            if self._refused:
                raise Refused(self._refused, verdict="")
            if self.offered is None:
                self._kept = False
                raise Refused(parking.no_point(), verdict="Not parked.")
        return "" if self.away else parking.at_next_point(time.monotonic() - self.offered)

    def unpark(self) -> None:
        """Let the call come back as soon as there is room, or not be parked after all."""
        with self._changed:
            self._kept = False
            self._changed.notify_all()

    def serve(self, process: WorkerProcess, message: Message, say: Callable[[str], None], *, ends: bool) -> None:
        """Answer a call: at once whether it is to make way, and later, on a thread, that it may go on.

        Args:
            process: its process.
            message: what it says: a `POINT`, `AWAY` or `BACK`.
            say: says something below its cell.
            ends: whether it is to end, so that it is not asked to make way.
        """
        if message.kind == POINT:
            _reply(process, POINT, yes=not ends and self._asks(_loaded(message)))
        elif message.kind == AWAY:
            self.away, self._left = True, time.monotonic()
            self.parked = Parked(state="parking", size=0, since=time.time())
            begin = functools.partial(self._work, process, _loaded(message), functools.partial(_said, say))
            try:
                threading.Thread(target=begin, name="tfgpu_magic-way", daemon=True).start()
            except RuntimeError:  # none can be started
                self.parked = None
                _reply(process, AWAY, yes=False)
        else:
            self.away, self.seconds = False, self.seconds + time.monotonic() - self._left

    def _asks(self, gpus: Collection[str]) -> bool:
        """Tell whether a call that is at a point, and has memory on these GPUs, is to make way."""
        self.offered = time.monotonic()
        if not _allowed():
            return False
        return self._kept or (self.offered >= self._rests_until and not _needed().isdisjoint(gpus))

    def _work(self, process: WorkerProcess, inside: Inside | why.Refusal, say: Callable[[str], None]) -> None:
        """Have a call parked that waits for that, brought back, and go on; one that cannot go on is ended."""
        pid, begun = process.pid or 0, time.monotonic()
        try:
            refused = parking.no_way([inside]) if isinstance(inside, why.Refusal) else self._park(pid, inside, say)
            gone = not refused and not self._brought_back(process, say)
        except Exception as error:  # whatever it is, the call could only wait for ever
            refused, gone = _trouble(error), self._gone is not None
        if refused and refused != self._refused:
            say(refused)
        if gone:
            process.signal(signal.SIGKILL)  # it gets none if it has ended
            return
        if not refused:
            say(parking.call_back(time.monotonic() - begun))
        with self._changed:
            self.parked, self._gone, self._refused = None, None, refused
            self._kept = self._kept and not refused
            self._rests_until = time.monotonic() + (AGAIN_AFTER if refused else STAY)
            self._changed.notify_all()
        _reply(process, AWAY, yes=not refused)

    def _park(self, pid: int, inside: Inside, say: Callable[[str], None]) -> str:
        """Have it parked; return why it is not."""
        followed = Followed(pid)

        def told(progress: Progress) -> None:
            followed.heard(progress)
            if self.parked is not None:
                self.parked = replace(self.parked, size=progress.size or self.parked.size)

        try:
            outcome = client.park(pid, inside=inside, name=ISOLATED, tell=told)
            self._gone, refused = followed.away(outcome), parking.no_way(outcome.refusals)
        except Exception as error:  # whatever it is, it may have been parked
            self._gone, refused = followed.away(None), _trouble(error)
        if self._gone is None:
            return refused
        self._suspend(suspended=True)
        with self._changed:
            self.parked = Parked(state="parked", size=self._gone.size, since=self._gone.since)
            self._changed.notify_all()
        say(parking.call_parked(self._gone.size))
        return ""

    def _brought_back(self, process: WorkerProcess, say: Callable[[str], None]) -> bool:
        """Wait until it is back; return False if its state is lost, or it has ended."""
        pid, back, said = process.pid or 0, True, ""
        held = () if self._gone is None else self._gone.held
        while process.status is None and lives(pid):
            if self._stays():
                entry = client.parked(pid)
                if entry is not None and entry.phase is Phase.BACK:  # somebody else has brought it back
                    self.unpark()  # and did not want it parked again
                    break
                continue
            try:
                outcome = client.unpark(pid, held=held, tell=self._tell, wanted=lambda: not self._kept)
                if client.is_back(outcome, pid):
                    break
                silent = _has(outcome, why.CANCELLED) or _has(outcome, why.ENDED)
                text = "" if silent else parking.call_stays(outcome.refusals)
            except Exception as error:  # it is tried again
                text = _trouble(error)
            else:
                if _has(outcome, why.LOST):
                    say(parking.lost_call())
                    return False
            if text and text != said:
                say(text)
                said = text
            time.sleep(LOOK_EVERY)
        else:
            back = False
        self._suspend(suspended=False)
        return back

    def _stays(self) -> bool:
        """Tell whether it is to stay parked; wait a moment if it is."""
        with self._changed:
            if self._kept and self.parked is not None:
                self.parked = replace(self.parked, state="parked")
                self._changed.notify_all()
            return self._kept and not self._changed.wait_for(lambda: not self._kept, LOOK_EVERY)

    def _tell(self, progress: Progress) -> None:
        self._suspend(suspended=progress.step != "copies back")  # from then on nobody else has the room
        if self.parked is not None and progress.step in _STEPS:
            self.parked = replace(self.parked, state=_STEPS[progress.step])

    def _suspend(self, *, suspended: bool) -> None:
        if suspended != self._suspended:
            self._suspended = suspended
            with contextlib.suppress(OSError):
                self.suspend(suspended)

    def _is_parked(self) -> bool:
        return self.parked is not None and self.parked.state == "parked"


def _allowed() -> bool:
    """Tell whether the calls of this process may be parked: those of notebooks and sessions that let themselves be."""
    if host.host() not in ("kernel", "session"):
        return False
    magics = host.shell().magics_manager.registry.get("TfGpuMagics")
    return bool(getattr(magics, "parking", "off") != "off")


def _loaded(message: Message) -> Any:
    return pickle.loads(message.parts[0])  # noqa: S301  # from our own process


def _said(say: Callable[[str], None], text: str) -> None:
    with contextlib.suppress(Exception):  # a kernel that is ending; whatever is not said, the call must go on
        say(text)


def _reply(process: WorkerProcess, kind: str, *, yes: bool) -> None:
    with contextlib.suppress(OSError):  # it has ended, which its status reports
        wire.send(process.connection, kind, [YES if yes else NO])


def _needed() -> set[str]:
    with contextlib.suppress(MonitorError, OSError), BoardDirectory() as place:
        return lease_reader.needed(place)
    return set()


def _trouble(error: Exception) -> str:
    if isinstance(error, MonitorError):
        return str(error)
    return f"The process that parks others cannot be asked: {str(error) or type(error).__name__}"


def _has(outcome: Outcome, reason: why.Reason) -> bool:
    return reason.among(outcome.refusals)
