"""The parker, one process for each user, that parks processes and brings them back: it listens, and keeps the record.

A lock makes it the only one. It stays as long as anything is parked, and begins by setting right what an earlier one
has died over: as soon as that one's workers have ended, which go on without it to the end of their call.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.leases.lease_file import LeaseFile
from tfgpu_magic.monitor.board import lockfile
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.lockfile import PARKER_NAME
from tfgpu_magic.monitor.owners.pids import began, family
from tfgpu_magic.parking import record
from tfgpu_magic.parking.driver_workers import DriverWorkers, OpenRequest
from tfgpu_magic.parking.gpu_state import Timeouts
from tfgpu_magic.parking.messages import HEARTBEAT, LOCK, SOCKET, ParkOutcome, Progress, Request
from tfgpu_magic.parking.parker_room import Waiting
from tfgpu_magic.parking.parker_transfers import Transfers
from tfgpu_magic.parking.record import ParkingLedger
from tfgpu_magic.parking.refusals import CANCELLED, ENDED, NOT_YOURS
from tfgpu_magic.parking.states import UNSETTLED

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKERS_LOCK = "lock-parker-workers-1"
"""The file whose lock every worker of a parker keeps, also when the parker has died."""
LINGER = 60.0
"""Seconds that the parker stays when nothing is parked and nobody has asked for anything."""

_TICK = 1.0  # seconds between two looks at what is parked
_REQUEST_TIMEOUT = 10.0  # seconds in which who connects says what is wanted
_PEER = struct.Struct("iII")  # struct ucred: pid, user, group. Source: unix(7), SO_PEERCRED


class Parker:
    """The parker.

    Args:
        place: where the board is.
        lock: the descriptor of the lock that it holds.
        before: what earlier parkers have left.
        paths: where workers find what they import.
        linger: seconds to stay when there is nothing to do.
    """

    def __init__(
        self,
        place: BoardDirectory,
        lock: int,
        before: record.ParkingRecord,
        paths: Sequence[str],
        *,
        linger: float = LINGER,
    ) -> None:
        self._place, self._lock, self._linger = place, lock, linger
        self._workers_lock = place.open(WORKERS_LOCK, os.O_RDWR | os.O_CREAT)
        self._ledger = ParkingLedger(place, before)
        self._workers = DriverWorkers(paths, self._workers_lock)
        self._waiting = Waiting(LeaseFile())
        self._timeouts = Timeouts()
        self._operations = Transfers(self._ledger, self._workers, self._waiting, self._timeouts)
        self._asked: set[OpenRequest] = set()
        self._used = self._begun = time.monotonic()
        self._alone = False
        self._leaving = False
        self._settling: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until there is nothing left to do, or the board is gone, or SIGTERM says so."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._leave)
        server = await asyncio.start_unix_server(self._serve, sock=_listening(self._place))
        lockfile.succeed(self._lock)
        while not self._over():
            self._tick()
            await asyncio.sleep(_TICK if self._alone else _TICK / 10)
        self._leaving = True
        server.close()
        for asked in self._asked:
            asked.call_off()
        while self._asked or self._settling:
            await asyncio.sleep(0.05)
        await self._workers.close()
        if self._place.holds(LOCK, self._lock):  # else it may be another parker's socket by now
            self._place.remove(SOCKET)

    @property
    def record(self) -> record.ParkingRecord:
        """What is parked."""
        return self._ledger.record

    def _leave(self) -> None:
        self._leaving = True

    def _over(self) -> bool:
        if self._leaving or not self._place.is_there() or not self._place.holds(LOCK, self._lock):
            return True
        if self._asked or self._ledger.busy():
            self._used = time.monotonic()
        return time.monotonic() - self._used > self._linger

    def _tick(self) -> None:
        """Drop what has ended, and set right what is not settled."""
        self._ledger.sweep()
        self._alone = self._alone or self._orphans_ended()
        for key in self._ledger.unsettled() if self._alone else ():
            if self._operations.idle(key):
                task = asyncio.ensure_future(self._operations.settle(key))
                self._settling.add(task)
                task.add_done_callback(self._settling.discard)

    def _orphans_ended(self) -> bool:
        """Tell whether no worker of an earlier parker is left, or one hangs; from then on it is our workers' lock."""
        sizes = [entry.size for entry in self._ledger.record.entries.values() if entry.phase in UNSETTLED]
        late = time.monotonic() - self._begun > self._timeouts.copying(max(sizes, default=0))
        try:
            fcntl.flock(self._workers_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if not late:
                return False
        with contextlib.suppress(OSError):
            fcntl.flock(self._workers_lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        self._used = time.monotonic()
        try:
            with contextlib.suppress(OSError, ValueError, asyncio.TimeoutError):
                line = await asyncio.wait_for(reader.readline(), _REQUEST_TIMEOUT)
                outcome = await self._answer(Request.from_line(line), reader, writer)
                writer.write(outcome.to_line())
                await writer.drain()
        finally:
            writer.close()

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> ParkOutcome:
        connection = writer.get_extra_info("socket")
        peer, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        pid = request.pid or peer
        start = began(pid)
        if user != os.geteuid():
            return ParkOutcome(refusals=(NOT_YOURS(),))
        if start is None:
            return ParkOutcome(refusals=(ENDED(),))
        if request.inside is not None and peer not in family(pid):
            request = replace(request, inside=None)  # nobody else can say that

        def tell(progress: Progress) -> None:
            if not writer.transport.get_write_buffer_size():  # nothing piles up for an asker that does not read
                writer.write(progress.to_line())

        asked = OpenRequest(request, (pid, start), tell)
        self._asked.add(asked)
        work = asyncio.ensure_future(self._work(asked))
        listening = asyncio.ensure_future(_called_off(reader, asked))
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=HEARTBEAT)
                if not work.done():
                    asked.tell(asked.said or Progress(step="checks"))
            outcome = work.result()
            if self._leaving and CANCELLED() in outcome.refusals:  # the asker asks the next parker
                raise ConnectionAbortedError
            return outcome
        finally:
            listening.cancel()
            self._asked.discard(asked)
            self._used = time.monotonic()

    async def _work(self, asked: OpenRequest) -> ParkOutcome:
        """Do what is asked, once the workers of an earlier parker have ended: they may still do something to it."""
        while not self._alone:
            await asked.pause(_TICK / 20)
            if asked.called_off:
                return ParkOutcome(entry=self._ledger.entry(asked.key), refusals=(CANCELLED(),))
        return await self._operations.do(asked)


async def _called_off(reader: asyncio.StreamReader, asked: OpenRequest) -> None:
    """Call a request off when its asker says so, or has gone."""
    with contextlib.suppress(OSError):
        await reader.readline()
    asked.call_off()


def _listening(place: BoardDirectory) -> socket.socket:
    """Return the socket that requests come in by."""
    place.remove(SOCKET)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(place.short_path(SOCKET))
    return listening


def lock(place: BoardDirectory) -> int | None:
    """Take the lock that makes this process the parker; None if another one has it for longer than a look takes."""
    for _ in range(20):
        fd = place.open(LOCK, os.O_RDWR | os.O_CREAT)
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if place.holds(LOCK, fd):
                return fd
        os.close(fd)
        time.sleep(0.02)
    return None


def main(elsewhere: str = "", paths: Sequence[str] = ()) -> None:
    """Be the parker, or return quietly if there is one.

    Args:
        elsewhere: other directories in which an earlier parker may have left a record, with ``:`` between.
        paths: where workers find what they import.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(PARKER_NAME)
    with contextlib.suppress(MonitorError), BoardDirectory() as place:
        held = lock(place)
        if held is None:
            return
        others = [Path(path) for path in elsewhere.split(":") if path and Path(path) != place.path]
        before = record.merged([record.read(place), *map(_left_at, others)])
        parker = Parker(place, held, before, paths or sys.path)
        asyncio.run(parker.run())
        if not place.is_there() and parker.record.entries:
            _hand_over(parker.record, [place.path, *others])


def _hand_over(left: record.ParkingRecord, paths: Sequence[Path]) -> None:
    """Leave the record in the first directory that can be had, when its own was removed."""
    for path in paths:
        with contextlib.suppress(MonitorError), BoardDirectory(path) as place:
            record.write(place, record.merged([record.read(place), left]))
            return


def _left_at(path: Path) -> record.ParkingRecord:
    """Return what an earlier parker has left in another directory."""
    with contextlib.suppress(MonitorError, OSError):
        if path.is_dir():
            with BoardDirectory(path) as place:
                return record.read(place)
    return record.ParkingRecord()
