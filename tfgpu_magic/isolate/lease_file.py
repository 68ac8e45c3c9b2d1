"""Who of all this user's processes has which GPUs for its calls, and who waits in which order: one small file.

Whoever reads or writes it has it alone meanwhile. A process holds a lock on a byte of it that is its own, and the
system lets go of that when the process ends, however it ends: so the living are known without their pids. Where the
board's directory cannot be had, each process has a table of its own.
Source: fcntl_locking(2), Linux: locks are for ranges of bytes, which need not be there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.isolate.claims import Claim, Need
from tfgpu_magic.monitor.directory import BoardDirectory

NAME = "leases-2"
"""The file, with the version of what stands in it."""

ABSENT = 5.0
"""Seconds after which one that waits and has not said so again is not waited for: its process is stopped, or hangs."""

_LONGEST = 2**20  # bytes
_PATIENCE = 5.0  # seconds in which the file is to be had; nobody needs it for more than a few milliseconds
_HEAD = struct.Struct("<II")  # length and checksum of the JSON that follows
_FLOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, pid
_MUTEX, _LIVES = 2**40, 2**41  # bytes that are locked, far beyond those that are written
_SLOTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A call that waits, or has its GPUs.

    Attributes:
        ticket: its number; who came earlier has a smaller one.
        slot: the number of its process.
        seen: when its process last looked after it, by the machine's monotonic clock.
        need: what it waits for; None while that is not known, and when it has it.
        claims: what it has.
    """

    ticket: int
    slot: int
    seen: float
    need: Need | None = None
    claims: tuple[Claim, ...] = ()


@dataclass(slots=True)
class Page:
    """What stands in the table.

    Attributes:
        last: the last number that was given.
        ended: how many had their GPUs, and have given them back.
        changes: how often anything changed that others may wait for.
        entries: every call, by its ticket.
    """

    last: int = 0
    ended: int = 0
    changes: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)

    def number(self) -> int:
        """A number that is larger than all before."""
        self.last += 1
        return self.last

    def put(self, entry: Entry) -> None:
        """Write an entry, new or in place of the one with its ticket."""
        self.entries[entry.ticket] = entry
        self.changes += 1

    def drop(self, ticket: int) -> None:
        """Strike an entry out, if it is there."""
        entry = self.entries.pop(ticket, None)
        self.changes += entry is not None
        self.ended += entry is not None and bool(entry.claims)

    def claims(self) -> list[Claim]:
        """What all have."""
        return [claim for entry in self.entries.values() for claim in entry.claims]


class LeaseTable:
    """A table of leases for this process alone."""

    slot = 0
    """The number of this process."""

    def __init__(self) -> None:
        self._page = Page()

    @contextlib.contextmanager
    def turn(self) -> Iterator[Page]:
        """Have what stands in it, and keep what is changed there."""
        yield self._page

    def forget(self) -> None:
        """In a process that was forked of the one that has it: know nothing of that one's calls."""
        self._page = Page()


class LeaseFile(LeaseTable):
    """The table of all processes of this user, in a file. One for a process: two would open each other's locks."""

    def __init__(self) -> None:
        super().__init__()
        self._place: BoardDirectory | None = None
        self._file = -1
        self._untold = (0, 0)

    @contextlib.contextmanager
    def turn(self) -> Iterator[Page]:
        """Have it alone, without the entries of those who have ended; write what is changed.

        What cannot be written, as on a full disk, others do not know; this process does, and writes it when it can.
        Nor does it write without the lock: it would undo what others write at the same time.
        """
        if not self._have():
            self._page.entries = self._own()
            yield self._page
            return
        locked = _lock(self._file, _MUTEX, _PATIENCE)
        try:
            page, before = self._read()
            ended, changes = page.ended, page.changes
            page.ended, page.changes = ended + self._untold[0], changes + self._untold[1]
            yield page
            self._page, text = page, _text(page)
            told = text == before or (locked and self._write(text, before))
            self._untold = (0, 0) if told else (page.ended - ended, page.changes - changes)
        finally:
            if locked:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _MUTEX)

    def forget(self) -> None:
        """In a process that was forked of the one that has it: have no number, and no calls."""
        super().forget()
        self._close()

    def _have(self) -> bool:
        """Open it, where that is not done, or somebody has removed it; tell whether it is there."""
        if self._place is not None and self._place.is_there() and self._place.holds(NAME, self._file):
            return True
        self._close()
        with contextlib.suppress(MonitorError, OSError):
            self._place = BoardDirectory()
            self._file = self._place.open(NAME, os.O_RDWR | os.O_CREAT)
            if (slot := self._new_slot()) is not None:
                own = {ticket: replace(entry, slot=slot) for ticket, entry in self._own().items()}
                self._page.entries, self.slot = own, slot
                return True
        self._close()
        return False

    def _new_slot(self) -> int | None:
        """A number that nobody alive has, and none of the dead that are still in the table."""
        locked = _lock(self._file, _MUTEX, _PATIENCE)
        try:
            taken = {entry.slot for entry in self._written()[0].entries.values()}
            free = (slot for slot in range(_SLOTS) if slot not in taken and _lock(self._file, _LIVES + slot, 0.0))
            return next(free, None)
        finally:
            if locked:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _MUTEX)

    def _own(self) -> dict[int, Entry]:
        return {ticket: entry for ticket, entry in self._page.entries.items() if entry.slot == self.slot}

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        if self._place is not None:
            self._place.close()
        self._place, self._file = None, -1

    def _read(self) -> tuple[Page, bytes]:
        """What stands in it, without the dead, and its text."""
        page, text = self._written()
        own = self._own()
        page.last = max(page.last, *own, 0)
        found = page.entries.items()
        theirs = {ticket: entry for ticket, entry in found if ticket not in own and entry.slot != self.slot}
        page.entries = dict(sorted((theirs | own).items()))
        for ticket, entry in theirs.items():
            if not self._lives(entry):
                page.drop(ticket)
        return page, text

    def _written(self) -> tuple[Page, bytes]:
        data = os.pread(self._file, _HEAD.size + _LONGEST, 0)
        if len(data) < _HEAD.size:
            return Page(), b""
        length, check = _HEAD.unpack_from(data)
        text = data[_HEAD.size : _HEAD.size + length]
        if zlib.crc32(text) != check:  # its writer was killed in the midst of it
            return Page(), b""
        return _page(text), text

    def _write(self, text: bytes, before: bytes) -> bool:
        """Write a text in place of the one before; tell whether that could be. None is left half written."""
        try:
            if len(text) <= _LONGEST and os.pwrite(self._file, _framed(text), 0) == _HEAD.size + len(text):
                return True
        except OSError:  # the disk is full, or a limit is reached, or it is gone
            pass
        with contextlib.suppress(OSError):
            os.pwrite(self._file, _framed(before), 0)  # there was room for it
        return False

    def _lives(self, entry: Entry) -> bool:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _LIVES + entry.slot, 1, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(self._file, fcntl.F_GETLK, asked))
        # A call outlives its caller for a moment, and so does what it holds.
        return kind != fcntl.F_UNLCK or any(map(_runs, entry.claims))


def lives(pid: int) -> bool:
    """Tell whether there is such a process here, whoever's it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def began(pid: int) -> int | None:
    """When a process began, in the system's ticks since its start; None where it has ended.

    Source: proc_pid_stat(5), fields 3 and 22. A zombie has ended: nobody may be there to wait for it.
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(rest[18])


def _runs(claim: Claim) -> bool:
    return claim.pid is not None and claim.began is not None and began(claim.pid) == claim.began


def _lock(file: int, start: int, patience: float) -> bool:
    """Lock a byte; tell whether it could be had in time."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN) or time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        else:
            return True


def _text(page: Page) -> bytes:
    entries = [asdict(entry) for entry in page.entries.values()]
    fields = {"last": page.last, "ended": page.ended, "changes": page.changes, "entries": entries}
    return json.dumps(fields, separators=(",", ":")).encode()


def _framed(text: bytes) -> bytes:
    return _HEAD.pack(len(text), zlib.crc32(text)) + text


def _page(text: bytes) -> Page:
    try:
        fields = json.loads(text)
        entries = [_entry(**entry) for entry in fields.pop("entries")]
        return Page(**fields, entries={entry.ticket: entry for entry in entries})
    except (TypeError, ValueError, KeyError, AttributeError):  # somebody else's hand
        return Page()


def _entry(*, need: dict[str, object] | None, claims: list[dict[str, object]], **rest: object) -> Entry:
    return Entry(
        need=None if need is None else Need.from_json(need),
        claims=tuple(map(Claim.from_json, claims)),
        **rest,  # type: ignore[arg-type]
    )
