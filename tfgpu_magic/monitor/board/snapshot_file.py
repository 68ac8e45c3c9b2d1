"""The board of one user and machine: a file in shared memory that one process writes and any number read.

    0        header: its layout and length; sequence, length and checksum of the message, when it was read, when the
             writer was last alive, and when it intends to read again; who writes, and what of the machine it sees
    4 KiB    two messages, one in force and one being written: a Snapshot in its JSON form each
    then     the rings of `history`

A reader takes the message that the header names and checks it; a message that is not whole is read again. So no reader
waits for the writer, no writer for a reader, and half a message is never seen, on any processor. Files are read and
written, and not mapped: a process that has mapped a file dies of SIGBUS when the file is truncated or the disk is full,
and a reader is a kernel full of work. It costs one microsecond more.

Environments with different versions of this package share a board. A later version adds to the header's end and to the
messages, and an earlier one passes over what it does not know.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import time
import zlib
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.said import say
from tfgpu_magic.model.snapshot import Process, Snapshot
from tfgpu_magic.monitor.board import history
from tfgpu_magic.monitor.board.directory import boot, view
from tfgpu_magic.monitor.owners.pids import began

if TYPE_CHECKING:
    from tfgpu_magic.monitor.board.directory import BoardDirectory

LAYOUT = 2
"""The number of the layout. Another one is another board: nobody who knows this one reads it."""
BOARD, LOCK = "board", "lock"
STALE_AFTER = 2.5
"""Seconds after which a writer that should beat every second is missing."""
VIEW_EVERY = 2.0
"""Seconds between two times that a writer finds out what it sees of the machine: a device may come later."""

_MAGIC = b"tfgpumag"
_HEADER = struct.Struct("<8sHHIQIIddddIIQ")
_CHECK = struct.Struct("<I")
_LONGEST = 512  # bytes of a header, with its checksum
_SLOTS = (4096, 4096 + 2**20)
_ROOM = 2**20  # bytes for a message
_ROWS = (4096, 1024, 0)  # the most processes that are told apart; the later, where their names are longer than any are
_HISTORY = 4096 + 2 * 2**20
_ALLOCATED = ((0, 4096), (_SLOTS[0], 2**16), (_SLOTS[1], 2**16), (_HISTORY, 2**17))
"""What is allocated when the file is made, as (offset, bytes): a disk that fills up later harms few boards."""


class Header(NamedTuple):
    """What the header says. Times are those of the monotonic clock.

    Attributes:
        boot: of which machine and boot it is (`directory.boot`).
        sequence: the number of the message.
        length: its bytes; 0 while there is none.
        check: its checksum.
        read_at: when the GPUs were read for it.
        beat: when the writer was last alive.
        beat_time: the same, in seconds since the epoch.
        due: when it intends to publish again.
        pid: the writer's process.
        view: what it sees of the machine (`directory.view`).
        began: when that process began (`pids.began`).
    """

    boot: int = 0
    sequence: int = 0
    length: int = 0
    check: int = 0
    read_at: float = 0.0
    beat: float = 0.0
    beat_time: float = 0.0
    due: float = 0.0
    pid: int = 0
    view: int = 0
    began: int = 0

    def pack(self) -> bytes:
        """Return its bytes."""
        packed = _HEADER.pack(_MAGIC, LAYOUT, _HEADER.size, *self)
        return packed + _CHECK.pack(zlib.crc32(packed))


class Published:
    """One published snapshot, parsed when it is first needed.

    Attributes:
        sequence: a number that rises from message to message; 0 for none yet.
        text: the snapshot in its JSON form.
    """

    def __init__(self, sequence: int, text: str) -> None:
        self.sequence = sequence
        self.text = text

    @cached_property
    def snapshot(self) -> Snapshot:
        """The snapshot, parsed from the text on first use."""
        return Snapshot.from_json(self.text)


NOTHING = Published(0, Snapshot(time=0.0, error=say("The GPUs are being asked for the first time.")).to_json())
"""The message of a board on which nothing was published yet."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a reader finds at one time.

    Attributes:
        message: the last one published; the same object as long as it is the same message.
        age: seconds since the GPUs were read for it; None where they never were.
        stale_since: if the writer is missing, since when, in seconds since the epoch: its last beat, or the time when
            this reader began; if it is alive and late with a reading, the time of the last one. Else None.
        every: seconds between this reading and the next one: more than is wanted where the driver is slow.
    """

    message: Published
    age: float | None
    stale_since: float | None
    every: float = 0.0

    @property
    def snapshot(self) -> Snapshot:
        """The message's snapshot."""
        return self.message.snapshot


class Writer:
    """The publisher. Its maker ensures that there is only one. It continues what an earlier writer left.

    Args:
        place: where the board is.

    Attributes:
        past: what the earlier writer published last; None where there is nothing.

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
        self.past = _message(self._fd, header) if header is not None else None
        if header is None:
            self._fd = self._create()
            header = Header(sequence=time.time_ns() // 1000)
        pid = os.getpid()
        self._header, self._view_at = header._replace(boot=boot(), pid=pid, began=began(pid) or 0), 0.0
        try:
            self._rings = history.Rings(self._fd, _HISTORY, history.read(self._fd, _HISTORY))
            self.beat(header.read_at)  # what was left is not true again: it is late, until there is a reading
        except OSError as error:
            raise self._trouble(error) from error

    def publish(self, snapshot: Snapshot, due: float | None = None) -> None:
        """Let readers see a snapshot, and add it to the history.

        Args:
            snapshot: what was read.
            due: as in `beat`.

        Raises:
            OSError: it could not be written; readers still find what was there before.
        """
        texts = (_folded(snapshot, most).to_json().encode() for most in _ROWS)
        text = next((text for text in texts if len(text) <= _ROOM), None)
        if text is None:
            raise OSError(f"{len(snapshot.processes)} processes are too many")
        sequence = self._header.sequence + 1
        history.write(self._fd, text, _SLOTS[sequence % 2])
        self._header = self._header._replace(
            sequence=sequence, length=len(text), check=zlib.crc32(text), read_at=time.monotonic()
        )
        self.beat(due)
        self._rings.add(snapshot)

    def beat(self, due: float | None = None) -> None:
        """Write that the writer is alive, and that nothing is newer than what was published.

        Args:
            due: when it intends to publish again, on the monotonic clock; None is a second from now.

        Raises:
            OSError: it could not be written.
        """
        now = time.monotonic()
        due = now + 1.0 if due is None else due
        if now >= self._view_at:
            self._header, self._view_at = self._header._replace(view=view()), now + VIEW_EVERY
        self._header = self._header._replace(beat=now, beat_time=time.time(), due=due)
        history.write(self._fd, self._header.pack(), 0)

    def is_there(self) -> bool:
        """Tell whether readers still find this board: neither it nor its directory was removed or replaced."""
        return self._place.is_there() and self._place.holds(BOARD, self._fd)

    def close(self) -> None:
        """Close the file, which stays."""
        os.close(self._fd)

    def _create(self) -> int:
        new = BOARD + "-new"
        self._place.remove(new)
        fd = self._place.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            for offset, length in _ALLOCATED:
                os.posix_fallocate(fd, offset, length)
            self._place.replace(new, BOARD)
        except OSError as error:
            os.close(fd)
            self._place.remove(new)
            raise self._trouble(error) from error
        return fd

    def _trouble(self, error: OSError) -> MonitorError:
        return MonitorError(say("{path} cannot be written to ({why}).", path=self._place.path, why=error.strerror))


def _folded(snapshot: Snapshot, most: int) -> Snapshot:
    """Return a snapshot of which so many processes are told apart, and all of those of whoever has few.

    The smaller ones of whoever has many are one row for each GPU, whose pid, -1 less the user's number, is none. So
    nobody hides others' processes by the number of their own.
    """
    rows = snapshot.processes
    if len(rows) <= most:
        return snapshot
    users: defaultdict[int | None, list[Process]] = defaultdict(list)
    for row in rows:
        users[row.uid].append(row)
    each = most
    while each and sum(min(each, len(theirs)) for theirs in users.values()) > most:
        each = each * 7 // 8
    kept, rest = list[Process](), defaultdict[tuple[str, int | None], list[Process]](list)
    for user, theirs in users.items():
        theirs.sort(key=lambda row: -(row.held or 0))
        kept += theirs[:each]
        for row in theirs[each:]:
            rest[row.gpu, user].append(row)
    for (gpu, user), theirs in rest.items():
        held = [row.held for row in theirs if row.held is not None]
        known = sum(held) if len(held) == len(theirs) else None
        kept.append(Process(gpu, 0 if user is None else -1 - user, "C", known, uid=user))
    order = {gpu.label: index for index, gpu in enumerate(snapshot.gpus)}
    kept.sort(key=lambda row: (order.get(row.gpu, len(order)), row.kind))
    return snapshot._replace(processes=tuple(kept))


class SnapshotReader:
    """A reader of the board. It never waits, and writes nothing.

    Args:
        place: where the board is, or will be.
    """

    def __init__(self, place: BoardDirectory) -> None:
        self._place = place
        self._fd = -1
        self._message = NOTHING
        # A writer is expected from now on.
        self._seen = Header(beat=time.monotonic(), beat_time=time.time(), due=math.inf)

    @property
    def header(self) -> Header:
        """The header that the last look found."""
        return self._seen

    def move(self, place: BoardDirectory) -> None:
        """Read the board there from now on; until something is published there, the last message stays."""
        self.close()
        self._place = place

    def look(self) -> Look:
        """Read the board now. While there is none, or none that is whole, return the last message found.

        Raises:
            MonitorError: the board's file is not ours, or cannot be opened.
        """
        self._find()
        for _ in range(50 if self._fd >= 0 else 0):  # a writer that publishes without pause is overtaken at last
            header = _header(self._fd)
            if header is None:
                continue
            if header.length and header.sequence != self._message.sequence:
                message = _text(self._fd, header)
                if message is None:
                    continue
                self._message = Published(header.sequence, message)
            self._seen = header if header.length or self._message is NOTHING else self._seen
            break
        seen, now = self._seen, time.monotonic()
        if self._message is NOTHING:
            return Look(NOTHING, None, None if _writer_is_here(seen, now) else seen.beat_time)
        since = None
        if not _writer_is_here(seen, now):
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
        """Close the file. Twice is fine; a later look opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _find(self) -> None:
        """Open the board's file, unless the open one is still the board's."""
        if self._fd >= 0 and self._place.holds(BOARD, self._fd):
            return
        self.close()
        try:
            self._fd = self._place.open(BOARD, os.O_RDONLY)
        except FileNotFoundError:
            return


def _writer_is_here(header: Header, now: float) -> bool:
    """Tell whether the writer has beaten lately."""
    return 0 <= now - header.beat < STALE_AFTER


def _header(fd: int) -> Header | None:
    """Read the header; return None if it is not whole, of another layout, or of before the last boot.

    What a later version has added to its end is passed over.
    """
    data = _read(fd, _LONGEST, 0)
    if len(data) < _HEADER.size + _CHECK.size:
        return None
    magic, layout, length, *fields = _HEADER.unpack_from(data)
    if magic != _MAGIC or layout != LAYOUT or not _HEADER.size <= length <= len(data) - _CHECK.size:
        return None
    header = Header(*fields)
    whole = _CHECK.unpack_from(data, length)[0] == zlib.crc32(data[:length])
    return header if whole and header.boot == boot() and header.length <= _ROOM else None


def _text(fd: int, header: Header) -> str | None:
    """Read the message that a header names; None if it is not whole."""
    text = _read(fd, header.length, _SLOTS[header.sequence % 2])
    return text.decode() if len(text) == header.length and zlib.crc32(text) == header.check else None


def _message(fd: int, header: Header) -> Snapshot | None:
    """Read what was published last; None where nothing was, or nothing that can be read."""
    text = _text(fd, header) if header.length else None
    with contextlib.suppress(ValueError):
        return Snapshot.from_json(text or "")
    return None


def _read(fd: int, length: int, offset: int) -> bytes:
    try:
        return os.pread(fd, length, offset)
    except OSError:
        return b""
