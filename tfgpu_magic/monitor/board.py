"""The noticeboard of one user and machine: a file in shared memory where one process writes and any number read.

    0        header: sequence, length and checksum of the message, when it was read, when the writer last was here,
             and when it means to read again
    4 KiB    two messages, one in force and one being written: a Snapshot in its JSON form each
    then     history.py's rings

A reader takes what the header names and checks it; what is not whole is read again. So no reader waits for the writer,
no writer for a reader, and half a message is never seen, on any processor. Files are read and written, and not mapped:
who has mapped a file dies of SIGBUS when somebody truncates it or the disk is full, and a reader is a kernel full of
work. It costs one microsecond more.
"""

from __future__ import annotations

import math
import os
import struct
import time
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor import history
from tfgpu_magic.monitor.directory import boot
from tfgpu_magic.monitor.snapshot import Parser, Snapshot

if TYPE_CHECKING:
    from tfgpu_magic.monitor.directory import BoardDirectory

VERSION = 3
"""Of this layout and of the messages' JSON. Files of different versions have different names, and never meet."""
BOARD, LOCK = f"board-{VERSION}", f"lock-{VERSION}"
STALE_AFTER = 2.5
"""Seconds after which a writer that should be here every second is missed."""

_MAGIC = b"tfgpumag"
_HEADER = struct.Struct("<8sIIQIIdddd")
_CHECK = struct.Struct("<I")
_SLOTS = (4096, 4096 + 2**20)
_ROOM = 2**20  # bytes for a message: some 15,000 processes
_HISTORY = 4096 + 2 * 2**20
_SURE = ((0, 4096), (_SLOTS[0], 2**16), (_SLOTS[1], 2**16), (_HISTORY, 2**17))
"""What is allotted when the file is made, as (offset, bytes): a disk that is full later does no harm to most boards."""


@dataclass(frozen=True, slots=True)
class _Header:
    boot: int
    sequence: int
    length: int
    check: int
    read_at: float
    beat: float
    beat_time: float
    due: float

    def pack(self) -> bytes:
        said = (self.boot, self.sequence, self.length, self.check)
        packed = _HEADER.pack(_MAGIC, VERSION, *said, self.read_at, self.beat, self.beat_time, self.due)
        return packed + _CHECK.pack(zlib.crc32(packed))


class Message:
    """One published snapshot, as text until somebody wants more.

    Attributes:
        sequence: a number that rises from message to message; 0 for none yet.
        text: the snapshot in its JSON form.
    """

    def __init__(self, sequence: int, text: str, parser: Parser) -> None:
        self.sequence = sequence
        self.text = text
        self._parser = parser

    @cached_property
    def snapshot(self) -> Snapshot:
        """The snapshot, read from the text when it is first asked for."""
        return self._parser.parse(self.text)


NOTHING = Message(0, Snapshot(time=0.0, error="The GPUs are being asked for the first time.").to_json(), Parser())
"""What is on a board where nothing was published yet."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a reader sees at one time.

    Attributes:
        message: the last one published; the same object as long as it is the same message.
        age: seconds since the GPUs were read for it; None when that never was.
        stale_since: if the writer is missed, since when, in seconds since the epoch: when it was last here, or was
            first looked for; if it is here and has not read when it meant to, when it last read. Else None.
        every: seconds between this reading and the next one: more than is wanted where the driver is slow.
    """

    message: Message
    age: float | None
    stale_since: float | None
    every: float = 0.0

    @property
    def snapshot(self) -> Snapshot:
        """The message's snapshot."""
        return self.message.snapshot


class Writer:
    """The one that publishes; whoever makes it sees to it that it is one. What an earlier writer left goes on.

    Args:
        place: where the board is.

    Raises:
        MonitorError: the file cannot be made.
    """

    def __init__(self, place: BoardDirectory) -> None:
        self._place = place
        try:
            self._fd = place.open(BOARD, os.O_RDWR)
            header = _header(self._fd)
        except (FileNotFoundError, MonitorError):
            header = None
        if header is None:
            self._fd = self._create()
            header = _Header(boot(), time.time_ns() // 1000, 0, 0, 0.0, 0.0, 0.0, 0.0)
        self._header = header
        try:
            self._rings = history.Rings(self._fd, _HISTORY, history.read(self._fd, _HISTORY))
            self.beat()
        except OSError as error:
            raise self._trouble(error) from error

    def publish(self, snapshot: Snapshot, due: float | None = None) -> None:
        """Let readers see a snapshot, and add it to the history.

        Args:
            snapshot: what was read.
            due: as for `beat`.

        Raises:
            OSError: it could not be written; readers still see what was there before.
        """
        text = snapshot.to_json().encode()
        if len(text) > _ROOM:
            note = f"There are {len(snapshot.processes)} processes, too many to show."
            gpus = tuple(replace(gpu, listed=False) for gpu in snapshot.gpus)
            text = replace(snapshot, gpus=gpus, processes=(), notes=(*snapshot.notes, note)).to_json().encode()
        sequence = self._header.sequence + 1
        history.write(self._fd, text, _SLOTS[sequence % 2])
        self._header = replace(
            self._header, sequence=sequence, length=len(text), check=zlib.crc32(text), read_at=time.monotonic()
        )
        self.beat(due)
        self._rings.add(snapshot)

    def beat(self, due: float | None = None) -> None:
        """Say that the writer is here, and that nothing is newer than what was published.

        Args:
            due: when it means to publish again, on the monotonic clock; None is a second from now.

        Raises:
            OSError: it could not be written.
        """
        now = time.monotonic()
        due = now + 1.0 if due is None else due
        self._header = replace(self._header, boot=boot(), beat=now, beat_time=time.time(), due=due)
        history.write(self._fd, self._header.pack(), 0)

    def is_there(self) -> bool:
        """Tell whether readers still find this board: nobody removed or replaced it or its directory."""
        return self._place.is_there() and self._place.holds(BOARD, self._fd)

    def close(self) -> None:
        """Let go of the file, which stays."""
        os.close(self._fd)

    def _create(self) -> int:
        new = BOARD + "-new"
        self._place.tidy()
        self._place.remove(new)
        fd = self._place.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            for offset, length in _SURE:
                os.posix_fallocate(fd, offset, length)
            self._place.replace(new, BOARD)
        except OSError as error:
            os.close(fd)
            self._place.remove(new)
            raise self._trouble(error) from error
        return fd

    def _trouble(self, error: OSError) -> MonitorError:
        return MonitorError(f"{self._place.path} cannot be written to ({error.strerror}).")


class Reader:
    """One that reads. It never waits, and writes nothing.

    Args:
        place: where the board is, or will be.
    """

    def __init__(self, place: BoardDirectory) -> None:
        self._place = place
        self._fd = -1
        self._message = NOTHING
        self._parser = Parser()
        self._seen = _Header(
            0, 0, 0, 0, 0.0, time.monotonic(), time.time(), math.inf
        )  # a writer is expected from now on

    def move(self, place: BoardDirectory) -> None:
        """Look there from now on; until something is published there, what was seen last stays in sight."""
        self.close()
        self._place = place

    def look(self) -> Look:
        """Look at the board now. While there is none, or none that is whole, it is the last one seen that is shown.

        Raises:
            MonitorError: the board's file is not ours, or cannot be opened.
        """
        self._find()
        for _ in range(50 if self._fd >= 0 else 0):  # a writer that publishes without pause is overtaken at last
            header = _header(self._fd)
            if header is None:
                continue
            if header.length and header.sequence != self._message.sequence:
                text = _read(self._fd, header.length, _SLOTS[header.sequence % 2])
                if len(text) != header.length or zlib.crc32(text) != header.check:
                    continue
                self._message = Message(header.sequence, text.decode(), self._parser)
            self._seen = header if header.length or self._message is NOTHING else self._seen
            break
        seen, now = self._seen, time.monotonic()
        if self._message is NOTHING:
            return Look(NOTHING, None, None if _here(seen, now) else seen.beat_time)
        since = None
        if not _here(seen, now):
            since = seen.beat_time
        elif now > seen.due + STALE_AFTER:
            since = seen.beat_time - (seen.beat - seen.read_at)
        return Look(self._message, now - seen.read_at, since, seen.due - seen.read_at)

    def history(self) -> history.History:
        """Return what was used of each GPU in the last hour.

        Raises:
            MonitorError: as `look`.
        """
        self._find()
        return history.read(self._fd, _HISTORY) if self._fd >= 0 else history.History()

    def close(self) -> None:
        """Let go of the file. Twice is fine; a later look opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _find(self) -> None:
        """Open the board's file, unless the one that is open is still it."""
        if self._fd >= 0 and self._place.holds(BOARD, self._fd):
            return
        self.close()
        try:
            self._fd = self._place.open(BOARD, os.O_RDONLY)
        except FileNotFoundError:
            return


def _here(header: _Header, now: float) -> bool:
    """Tell whether the writer was here lately."""
    return 0 <= now - header.beat < STALE_AFTER


def _header(fd: int) -> _Header | None:
    """Read the header; None if it is not whole, of another layout, or of before the last boot."""
    data = _read(fd, _HEADER.size + _CHECK.size, 0)
    if len(data) < _HEADER.size + _CHECK.size or _CHECK.unpack_from(data, _HEADER.size)[0] != zlib.crc32(
        data[: _HEADER.size]
    ):
        return None
    magic, version, *fields = _HEADER.unpack_from(data)
    header = _Header(*fields)
    good = magic == _MAGIC and version == VERSION and header.boot == boot() and header.length <= _ROOM
    return header if good else None


def _read(fd: int, length: int, offset: int) -> bytes:
    try:
        return os.pread(fd, length, offset)
    except OSError:
        return b""
