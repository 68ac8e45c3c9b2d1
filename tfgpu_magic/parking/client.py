"""Asks the parker to park a process or to bring one back, and starts it where there is none; for any process.

A parker that dies meanwhile is started again, and asked again: it knows from its record and from the driver what is
done already. Whoever waits is told for whom and how long, and may go at any time. Where several wait for one process
to come back, one thread asks for them all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.board.directory import BoardDirectory, directories, other_directories
from tfgpu_magic.monitor.board.lockfile import begin
from tfgpu_magic.monitor.board.starting import launch
from tfgpu_magic.parking import facts, record
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.messages import CALL_OFF, LOCK, SILENCE, SOCKET, ParkOutcome, Progress, Request, reply
from tfgpu_magic.parking.states import UNSETTLED, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgpu_magic.model.report import HeldMemory
    from tfgpu_magic.parking.record import ParkedProcess

CODE = (
    "import os, sys; os.fork() and os._exit(0); elsewhere, *paths = sys.argv[1:]; sys.path += paths; "
    "from tfgpu_magic.parking.parker import main; main(elsewhere, paths)"
)
"""What a parker runs; it forks at once, so that its starter has a child for milliseconds only."""

START_TIMEOUT = 60.0
"""Seconds in which a parker that was started listens."""
TRIES = 3
"""How often a request is made again when the parker has died over it."""
_UNTOLD = {
    why.DECLINED, why.ENDED, why.HOLDS_NOTHING, why.LOST, why.NO_DRIVER, why.NOT_YOURS, why.UNANSWERED, why.UNLISTED,
}  # fmt: skip
"""Why it cannot be said that a process has its state."""
_POLL = 0.1  # seconds until it is looked again whether a request is still wanted


class ParkerDied(MonitorError):
    """The parker has ended before it answered, again and again; it is not known what came of the request."""


class ParkerHangs(MonitorError):
    """The parker does not answer."""


def park(
    pid: int | None = None, *, inside: Inside | None, name: str = "", allow_open_module: bool = False,
    tell: Callable[[Progress], None] = lambda _: None, wanted: Callable[[], bool] = lambda: True,
) -> ParkOutcome:  # fmt: skip
    """Park a process.

    Args:
        pid: the process; None is this one.
        inside: what it says of itself; only it and what has started it can say that.
        name: what it is called.
        allow_open_module: whether the administrator allows the open kernel module.
        tell: takes each progress.
        wanted: tells whether it is still wanted; a copy that is begun is ended all the same.

    Raises:
        MonitorError: the parker cannot be started, hangs, or dies again and again.
    """
    request = Request(deed="park", pid=pid, name=name, inside=inside, allow_open_module=allow_open_module)
    return ask(request, tell=tell, wanted=wanted)


def check(pid: int | None = None, *, inside: Inside | None, allow_open_module: bool = False) -> ParkOutcome:
    """Tell whether a process could be parked, and why not; arguments and errors are those of `park`."""
    return ask(Request(deed="check", pid=pid, inside=inside, allow_open_module=allow_open_module))


def unpark(
    pid: int | None = None, *, held: tuple[HeldMemory, ...] = (), tell: Callable[[Progress], None] = lambda _: None,
    wanted: Callable[[], bool] = lambda: True,
) -> ParkOutcome:  # fmt: skip
    """Bring a process back; wait until there is room for it.

    Args:
        pid: the process; None is this one.
        held: what it held when it was parked, where the caller knows that; only a parker whose record is lost uses it.
        tell: takes each progress.
        wanted: tells whether it is still wanted; Ctrl-C calls it off, too, and is raised when that is done.

    Raises:
        MonitorError: as `park`.
    """
    return ask(Request(deed="unpark", pid=pid, held=held), tell=tell, wanted=wanted)


def parked(pid: int | None = None) -> ParkedProcess | None:
    """Return what the record says of a process; None where it says nothing. Nobody is asked, and nothing started."""
    wanted = pid or os.getpid()
    with contextlib.suppress(MonitorError), BoardDirectory() as place:
        return next((one for one in record.read_all(place).entries.values() if one.pid == wanted), None)
    return None


def seconds_back(size: int) -> float:
    """Return how long so many bytes take back to the GPU, by what was measured here; nobody is asked."""
    with contextlib.suppress(MonitorError), BoardDirectory() as place:
        return record.read_all(place).rates.seconds_back(size)
    return record.Rates().seconds_back(size)


def is_back(outcome: ParkOutcome) -> bool:
    """Tell whether this process has its state after `unpark`; errors are those of `unpark`.

    One of which nothing is known has it where the driver lists it: something else has brought it back.
    """
    if not why.NOT_PARKED.among(outcome.refusals):
        return outcome.done
    found = check(inside=Inside())
    if found.entry is not None and found.entry.parked:
        return False
    return _UNTOLD.isdisjoint(one.reason for one in found.refusals)


def attend() -> bool:
    """Start a parker if one has died over something that is not settled, and nobody has asked for another since.

    Whoever looks at the record now and then calls this. Where nothing is parked it takes microseconds.

    Returns:
        Whether one was started.

    Raises:
        MonitorError: it cannot be started.
    """
    with BoardDirectory() as place:
        there = record.read_all(place).entries.values()
        if not any(entry.phase in UNSETTLED or entry.wanted for entry in there):
            return False
        others = other_directories(place)
        try:
            return not any(map(_lives, (place, *others))) and _launch(place)
        finally:
            for other in others:
                other.close()


def why_not_to_end(pid: int) -> str | None:
    """Return why a process is not to be killed, empty where it may be; None of one that the record does not have.

    To kill one whose state was brought back under the open kernel module may stop the machine. One that ends by itself
    has stopped none, nor one whose state is away. Source: NVIDIA/cuda-checkpoint#53.
    """
    entry = parked(pid)
    if entry is None:
        return None
    was_away = entry.returns > 0 or entry.phase not in (Phase.LOCKING, Phase.CHECKPOINTING)
    if entry.phase is Phase.PARKED or not was_away or facts.open_module() is False:
        return ""
    return (
        "It was parked once, and under the driver's open kernel module to kill such a process has hung whole hosts. "
        "Nothing was done: have it end by itself."
    )


def ask(
    request: Request, *, tell: Callable[[Progress], None] = lambda _: None, wanted: Callable[[], bool] = lambda: True
) -> ParkOutcome:
    """Ask the parker, and wait for what comes of it."""
    for _ in range(TRIES):
        with contextlib.suppress(_Gone), _connected() as connection:
            return _conversation(connection, request, tell, wanted)
    raise ParkerDied("The process that parks others has ended unexpectedly, three times. Say it again.")


class _Gone(Exception):
    """The parker has closed the connection, or has died."""


def _conversation(
    connection: socket.socket, request: Request, tell: Callable[[Progress], None], wanted: Callable[[], bool]
) -> ParkOutcome:
    """Make a request, and follow it to its end. Ctrl-C calls it off, and is raised at its end; a second one at once."""
    lines, off = _Replies(connection), False
    interrupted: KeyboardInterrupt | None = None
    _send(connection, request.to_line())
    while True:
        try:
            said = lines.next()
            if isinstance(said, ParkOutcome):
                break
            if said is not None:
                tell(said)
            leave = not wanted()
        except _Gone:
            if interrupted is not None:
                raise interrupted from None
            raise
        except KeyboardInterrupt as error:
            if interrupted is not None:
                raise
            interrupted, leave = error, True
        if leave and not off:
            off = True
            _send(connection, CALL_OFF)
    if interrupted is not None:
        raise interrupted
    return said


def _send(connection: socket.socket, line: bytes) -> None:
    """Send a line; that nobody listens any more is seen when the answer is missing."""
    with contextlib.suppress(OSError):
        connection.sendall(line)


class _Replies:
    """What the parker says on a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""
        self._heard = time.monotonic()

    def next(self) -> Progress | ParkOutcome | None:
        """Return what it says next; None if it is silent for a moment.

        Raises:
            _Gone: it has closed the connection.
            ParkerHangs: it is silent for too long.
            MonitorError: it says what this version does not understand.
        """
        if b"\n" not in self._rest and not self._receive():
            if time.monotonic() - self._heard > SILENCE:
                raise ParkerHangs("The process that parks others does not answer. Say it again in a while.")
            return None
        line, ended, rest = self._rest.partition(b"\n")
        if not ended:
            return None
        self._rest = rest
        try:
            return reply(line)
        except ValueError as error:
            raise MonitorError(
                "The process that parks others is of another version of tfgpu_magic, and is not understood. It ends a "
                "minute after nothing is parked any more: bring back what the other version has parked."
            ) from error

    def _receive(self) -> bool:
        """Wait a moment for more; tell whether some has come.

        Raises:
            _Gone: it has closed the connection.
        """
        try:
            new = self._connection.recv(2**16)
        except TimeoutError:
            return False
        except OSError:
            new = b""
        if not new:
            raise _Gone
        self._rest += new
        self._heard = time.monotonic()
        return True


@contextlib.contextmanager
def _connected() -> Iterator[socket.socket]:
    """Give a connection to the parker, which is started if there is none.

    Raises:
        MonitorError: it cannot be started, or does not listen.
    """
    try:
        with BoardDirectory() as place:
            others = other_directories(place)
            try:
                connection = _found(place, others) or _started(place, others)
            finally:
                for other in others:
                    other.close()
    except OSError as error:  # no descriptors are left, say
        raise MonitorError(f"The process that parks others cannot be asked ({error.strerror}).") from error
    with connection:
        yield connection


def _found(place: BoardDirectory, others: list[BoardDirectory]) -> socket.socket | None:
    """Return a connection to the parker in any directory that it may be in."""
    for one in (place, *others):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_POLL)
        try:
            connection.connect(one.short_path(SOCKET))
        except OSError:
            connection.close()
        else:
            return connection
    return None


def _started(place: BoardDirectory, others: list[BoardDirectory]) -> socket.socket:
    """Start a parker, and return a connection to it."""
    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end:
        _launch(place)
        if (connection := _found(place, others)) is not None:
            return connection
        time.sleep(_POLL / 2)
    raise ParkerHangs("The process that parks others was started, and does not answer. Say it again in a while.")


def _lives(place: BoardDirectory) -> bool:
    """Tell whether a parker has a directory; it is not asked, so that one that hangs holds nobody up."""
    try:
        fd = place.open(LOCK, os.O_RDWR)
    except (FileNotFoundError, MonitorError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _launch(place: BoardDirectory) -> bool:
    """Start a parker, unless there is one, or one is on its way; tell whether one was started."""
    elsewhere = ":".join(str(path) for path in directories() if path != place.path)
    try:
        fd = place.open(LOCK, os.O_RDWR | os.O_CREAT)
        try:
            needed = begin(place, fd, LOCK)
        finally:
            os.close(fd)
        if needed:
            launch(CODE, (elsewhere,), place)
    except OSError as error:
        raise MonitorError(f"The process that parks others cannot be started ({error.strerror}).") from error
    return needed


class ComingBack:
    """The attempt. It is called off when nobody waits for it any more.

    Args:
        pid: the process; None is this one.
        held: what it held when it was parked, where that is known.
        settle: is called with what has come of it, before anybody is told.

    Attributes:
        over: whether it has ended.
        progress: how it is getting on.
    """

    def __init__(
        self,
        pid: int | None = None,
        held: tuple[HeldMemory, ...] = (),
        settle: Callable[[ParkOutcome], None] = lambda _: None,
    ) -> None:
        self.over = False
        self.progress: Progress | None = None
        self._pid, self._held, self._settle = pid, held, settle
        self._outcome: ParkOutcome | MonitorError | None = None
        self._changed = threading.Condition()
        self._waiting = 1
        self._off = False
        threading.Thread(target=self._work, name="tfgpu_magic-unpark", daemon=True).start()

    def join(self) -> bool:
        """Wait for it, too, if it can still be waited for; whoever joins has to `leave`. It begins with one."""
        with self._changed:
            if self.over or self._off:
                return False
            self._waiting += 1
            return True

    def leave(self) -> None:
        """Wait for it no longer."""
        with self._changed:
            self._waiting -= 1
            self._off = self._off or not self._waiting

    def call_off(self) -> None:
        """Have it end for all who wait, unless it can no longer be called off."""
        with self._changed:
            self._off = True

    def outcome(self, seconds: float | None, show: Callable[[Progress], None] = lambda _: None) -> ParkOutcome | None:
        """Wait for what comes of it; return None where it takes longer.

        Args:
            seconds: how long to wait; None is as long as it takes.
            show: takes each progress.

        Raises:
            MonitorError: the parker cannot be asked.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.over, 2 * _POLL)
                outcome, progress = self._outcome, self.progress
            if isinstance(outcome, MonitorError):
                raise outcome
            if outcome is not None:
                return outcome
            if end is not None and time.monotonic() > end:
                return None
            show(progress or Progress(step="begins"))

    def _work(self) -> None:
        try:
            done = unpark(pid=self._pid, held=self._held, tell=self._tell, wanted=self._wanted)
            self._settle(done)
            outcome: ParkOutcome | MonitorError = done
        except MonitorError as error:
            outcome = error
        except Exception as error:  # those who wait must hear of it
            why = str(error) or type(error).__name__
            outcome = MonitorError(f"The process that parks others cannot be asked: {why}")
        with self._changed:
            self._outcome, self.over = outcome, True
            self._changed.notify_all()

    def _tell(self, progress: Progress) -> None:
        self.progress = progress

    def _wanted(self) -> bool:
        return not self._off
