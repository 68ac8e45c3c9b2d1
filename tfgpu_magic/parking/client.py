"""Asks the helper to park a process or to bring one back, and starts it where there is none; for any process.

A helper that dies meanwhile is started again, and asked again: it knows from its record and from the driver what is
done already. Whoever waits is told for whom and how long, and may go at any time.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.directory import BoardDirectory, directories, other_directories
from tfgpu_magic.monitor.starting import launch
from tfgpu_magic.parking import record
from tfgpu_magic.parking.messages import CALL_OFF, Outcome, Progress, Request, reply
from tfgpu_magic.parking.settings import SILENCE, SOCKET, START_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgpu_magic.parking.checks import Inside
    from tfgpu_magic.parking.record import Entry, Held

CODE = (
    "import os, sys; os.fork() and os._exit(0); elsewhere, *paths = sys.argv[1:]; sys.path += paths; "
    "from tfgpu_magic.parking.parker import main; main(elsewhere, paths)"
)
"""What a helper runs; it forks at once, so that its starter has a child for milliseconds only."""

TRIES = 3
"""How often a request is made again when the helper has died over it."""
_POLL = 0.1  # seconds between two looks whether a request is still wanted


class HelperDied(MonitorError):
    """The helper has ended before it answered, again and again; it is not known what came of the request."""


class HelperHangs(MonitorError):
    """The helper does not answer."""


def park(
    pid: int | None = None, *, inside: Inside | None, name: str = "", allow_open_module: bool = False,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Outcome:  # fmt: skip
    """Park a process.

    Args:
        pid: the process; None is this one.
        inside: what it says of itself; only it and what has started it can say that.
        name: what it is called.
        allow_open_module: whether the administrator allows the open kernel module.
        tell: takes each progress.

    Raises:
        MonitorError: the helper cannot be started, hangs, or dies again and again.
    """
    request = Request(deed="park", pid=pid, name=name, inside=inside, allow_open_module=allow_open_module)
    return ask(request, tell=tell)


def check(pid: int | None = None, *, inside: Inside | None, allow_open_module: bool = False) -> Outcome:
    """Tell whether a process could be parked, and why not; arguments and errors are those of `park`."""
    return ask(Request(deed="check", pid=pid, inside=inside, allow_open_module=allow_open_module))


def unpark(
    pid: int | None = None, *, held: tuple[Held, ...] = (), tell: Callable[[Progress], None] = lambda _: None,
    wanted: Callable[[], bool] = lambda: True,
) -> Outcome:  # fmt: skip
    """Bring a process back; wait until there is room for it.

    Args:
        pid: the process; None is this one.
        held: what it held when it was parked, where the caller knows that; only a helper whose record is lost uses it.
        tell: takes each progress.
        wanted: tells whether it is still wanted; Ctrl-C calls it off, too, and is raised when that is done.

    Raises:
        MonitorError: as `park`.
    """
    return ask(Request(deed="unpark", pid=pid, held=held), tell=tell, wanted=wanted)


def parked(pid: int | None = None) -> Entry | None:
    """Return what the record says of a process; None where it says nothing. Nobody is asked, and nothing started."""
    wanted = pid or os.getpid()
    with contextlib.suppress(MonitorError), BoardDirectory() as place:
        return next((one for one in record.read_all(place).entries.values() if one.pid == wanted), None)
    return None


def ask(
    request: Request, *, tell: Callable[[Progress], None] = lambda _: None, wanted: Callable[[], bool] = lambda: True
) -> Outcome:
    """Ask the helper, and wait for what comes of it."""
    for _ in range(TRIES):
        with contextlib.suppress(_Gone), _connected() as connection:
            return _conversation(connection, request, tell, wanted)
    raise HelperDied("The process that parks others has ended unexpectedly, three times. Say it again.")


class _Gone(Exception):
    """The helper has closed the connection, or has died."""


def _conversation(
    connection: socket.socket, request: Request, tell: Callable[[Progress], None], wanted: Callable[[], bool]
) -> Outcome:
    interrupted, off = False, False
    with contextlib.suppress(OSError):
        connection.sendall(request.to_line())
    lines = _lines(connection)
    while True:
        try:
            line = next(lines)
            if line is not None:
                said = reply(line)
                if isinstance(said, Outcome):
                    break
                tell(said)
            leave = not off and not wanted()
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = leave = True
            lines = _lines(connection)
        if leave and not off:
            off = True
            with contextlib.suppress(OSError):
                connection.sendall(CALL_OFF)
    if interrupted:
        raise KeyboardInterrupt
    return said


def _lines(connection: socket.socket) -> Iterator[bytes | None]:
    """Give each line of the helper, and None now and then between two.

    Raises:
        _Gone: there are no more.
        HelperHangs: none comes in time.
    """
    rest, heard = b"", time.monotonic()
    while True:
        ready, _, _ = select.select([connection], [], [], _POLL)
        if not ready:
            if time.monotonic() - heard > SILENCE:
                raise HelperHangs("The process that parks others does not answer. Say it again in a while.")
            yield None
            continue
        try:
            new = connection.recv(2**16)
        except OSError:
            new = b""
        if not new:
            raise _Gone
        heard = time.monotonic()
        *whole, rest = (rest + new).split(b"\n")
        yield from whole


@contextlib.contextmanager
def _connected() -> Iterator[socket.socket]:
    """Give a connection to the helper, which is started if there is none.

    Raises:
        MonitorError: it cannot be started, or does not listen.
    """
    with BoardDirectory() as place:
        others = other_directories(place)
        try:
            connection = _found(place, others) or _started(place, others)
        finally:
            for other in others:
                other.close()
    with connection:
        yield connection


def _found(place: BoardDirectory, others: list[BoardDirectory]) -> socket.socket | None:
    """Return a connection to the helper in any directory that it may be in."""
    for one in (place, *others):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(one.short_path(SOCKET))
        except OSError:
            connection.close()
        else:
            return connection
    return None


def _started(place: BoardDirectory, others: list[BoardDirectory]) -> socket.socket:
    end = time.monotonic() + START_TIMEOUT
    elsewhere = ":".join(str(path) for path in directories() if path != place.path)
    try:
        launch(CODE, (elsewhere,), place)
        again = time.monotonic() + START_TIMEOUT / 3
        while time.monotonic() < end:
            if (connection := _found(place, others)) is not None:
                return connection
            if time.monotonic() > again:  # one that was just ending may have kept the lock from it
                launch(CODE, (elsewhere,), place)
                again = end
            time.sleep(0.02)
    except OSError as error:
        raise MonitorError(f"The process that parks others cannot be started ({error.strerror}).") from error
    raise HelperHangs("The process that parks others was started, and does not answer. Say it again in a while.")
