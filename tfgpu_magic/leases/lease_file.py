"""The lease table of all this user's processes, in one small file: which calls have which GPUs, and which wait.

A process reads and writes it under an exclusive lock. Each process also holds a lock on a byte of the file that is
its own, and the system releases that when the process ends, however it ends: so it is known without pids which
processes are alive. If the board's directory cannot be had, each process has a table of its own.
Source: fcntl_locking(2), Linux: locks are for ranges of bytes, which need not be there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import threading
import time
import zlib
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.leases.allocation import LeasedGpu
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.owners.pids import began
from tfgpu_magic.policy.promises import Promise

NAME = "leases-8"
"""The file's name, with the version of its content."""

ABSENT = 5.0
"""Seconds after which a waiting call whose entry was not renewed is passed over: its process is stopped, or hangs."""

_MAX_SIZE = 2**20  # bytes
_LOCK_TIMEOUT = 5.0  # seconds in which the lock is to be had; no process needs it for more than a few milliseconds
_HEAD = struct.Struct("<II")  # length and checksum of the JSON that follows
_FLOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, pid
_MUTEX, _LIVES = 2**40, 2**41  # bytes that are locked, far beyond those that are written
_SLOTS = 4096
_OURS: set[int] = set()  # the numbers of this process, which sees no lock of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEntry:
    """A call that waits, or has its GPUs.

    Attributes:
        number: its number; a call that came earlier has a smaller one.
        slot: the number of its process.
        seen: when its process last renewed it, by the machine's monotonic clock.
        came: when the call was made, in seconds since the epoch.
        requested: the GPUs that it requests, or some of them, by their `allocation.key`; none while that is not known.
        leased: what it has.
    """

    number: int
    slot: int
    seen: float
    came: float = 0.0
    requested: tuple[str, ...] = ()
    leased: tuple[LeasedGpu, ...] = ()


@dataclass(slots=True)
class Page:
    """The content of the lease table.

    Attributes:
        last: the last number that was drawn.
        ended: how many calls have given their GPUs back.
        changes: how often anything changed that another call may wait for.
        entries: every call, by its number.
    """

    last: int = 0
    ended: int = 0
    changes: int = 0
    entries: dict[int, LeaseEntry] = field(default_factory=dict)

    def number(self) -> int:
        """Return a number that is larger than all before."""
        self.last += 1
        return self.last

    def put(self, entry: LeaseEntry) -> None:
        """Add an entry, or replace the one with its number."""
        self.entries[entry.number] = entry
        self.changes += 1

    def drop(self, number: int) -> None:
        """Remove an entry, if it is there."""
        entry = self.entries.pop(number, None)
        self.changes += entry is not None
        self.ended += entry is not None and bool(entry.leased)

    def waits_behind(self, number: int, gpus: Collection[str]) -> bool:
        """Tell whether a call for one of these GPUs came before another one, still waits, and is looked after.

        Args:
            number: that of the other one.
            gpus: these.
        """
        return any(
            entry.number < number
            and not (entry.leased or time.monotonic() - entry.seen >= ABSENT)
            and not set(gpus).isdisjoint(entry.requested)
            for entry in self.entries.values()
        )

    def leased(self) -> list[LeasedGpu]:
        """Return what all calls have."""
        return [one for entry in self.entries.values() for one in entry.leased]


class LeaseTable:
    """A table of leases for this process alone."""

    slot = 0
    """The number of this process."""

    def __init__(self) -> None:
        self._page = Page()
        self._alone = threading.RLock()  # the file's lock keeps other processes out, and no other thread

    @contextlib.contextmanager
    def turn(self) -> Iterator[Page]:
        """Give the content, and keep what is changed in it."""
        with self._alone:
            yield self._page

    def forget(self) -> None:
        """Drop the parent's calls, in a process that was forked from the table's own."""
        self._page, self._alone = Page(), threading.RLock()


class LeaseFile(LeaseTable):
    """The table of all processes of this user, in a file. One for a process: two would release each other's locks."""

    def __init__(self) -> None:
        super().__init__()
        self._directory: BoardDirectory | None = None
        self._file = -1
        self._unwritten = (0, 0)

    @contextlib.contextmanager
    def turn(self) -> Iterator[Page]:
        """Give the content under the lock, without the entries of processes that have ended; write what is changed.

        What cannot be written, as on a full disk, is not seen by other processes; this one keeps it, and writes it when
        it can. It does not write without the lock, which would undo what other processes write at the same time.
        """
        with self._alone:
            if not self._ensure_open():
                self._page.entries = self._own()
                yield self._page
                return
            locked = _lock(self._file, _MUTEX, _LOCK_TIMEOUT)
            try:
                page, before = self._read()
                ended, changes = page.ended, page.changes
                page.ended, page.changes = ended + self._unwritten[0], changes + self._unwritten[1]
                yield page
                self._page, text = page, _text(page)
                written = text == before or (locked and self._write(text, before))
                self._unwritten = (0, 0) if written else (page.ended - ended, page.changes - changes)
            finally:
                if locked:
                    fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _MUTEX)

    def forget(self) -> None:
        """Drop the parent's number and calls, in a process that was forked from the table's own."""
        super().forget()
        self._close()

    def _ensure_open(self) -> bool:
        """Open the file if it is not open, or was removed; tell whether it is there."""
        if self._directory is not None and self._directory.is_there() and self._directory.holds(NAME, self._file):
            return True
        self._close()
        with contextlib.suppress(MonitorError, OSError):
            self._directory = BoardDirectory()
            self._file = self._directory.open(NAME, os.O_RDWR | os.O_CREAT)
            if (slot := self._new_slot()) is not None:
                own = {number: replace(entry, slot=slot) for number, entry in self._own().items()}
                self._page.entries, self.slot = own, slot
                _OURS.add(slot)
                return True
        self._close()
        return False

    def _new_slot(self) -> int | None:
        """Return a number that no process has, alive or dead and still in the table; None if there is none."""
        locked = _lock(self._file, _MUTEX, _LOCK_TIMEOUT)
        try:
            taken = {entry.slot for entry in written(self._file)[0].entries.values()}
            free = (slot for slot in range(_SLOTS) if slot not in taken and _lock(self._file, _LIVES + slot, 0.0))
            return next(free, None)
        finally:
            if locked:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _MUTEX)

    def _own(self) -> dict[int, LeaseEntry]:
        return {number: entry for number, entry in self._page.entries.items() if entry.slot == self.slot}

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            _OURS.discard(self.slot)
        if self._directory is not None:
            self._directory.close()
        self._directory, self._file = None, -1

    def _read(self) -> tuple[Page, bytes]:
        """Return the content, without the entries of processes that have ended, and its text."""
        page, text = written(self._file)
        own = self._own()
        page.last = max(page.last, *own, 0)
        found = page.entries.items()
        theirs = {number: entry for number, entry in found if number not in own and entry.slot != self.slot}
        page.entries = dict(sorted((theirs | own).items()))
        for number, entry in theirs.items():
            if not is_alive(self._file, entry):
                page.drop(number)
        return page, text

    def _write(self, text: bytes, before: bytes) -> bool:
        """Replace the text `before`; tell whether that worked. No text is left half written."""
        try:
            if len(text) <= _MAX_SIZE and os.pwrite(self._file, _framed(text), 0) == _HEAD.size + len(text):
                return True
        except OSError:  # the disk is full, or a limit is reached, or it is gone
            pass
        with contextlib.suppress(OSError):
            os.pwrite(self._file, _framed(before), 0)  # there was room for it
        return False


TABLE = LeaseFile()
"""That of this process."""

os.register_at_fork(after_in_child=TABLE.forget)


def written(file: int) -> tuple[Page, bytes]:
    """Return the content of the table, and its text: empty where there is none, or it is half written."""
    data = os.pread(file, _HEAD.size + _MAX_SIZE, 0)
    if len(data) < _HEAD.size:
        return Page(), b""
    length, check = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + length]
    if zlib.crc32(text) != check:  # its writer was killed while it wrote
        return Page(), b""
    return _page(text), text


def is_alive(file: int, entry: LeaseEntry) -> bool:
    """Tell whether the process of a call exists, or that of its caller; a process sees no lock of its own."""
    # A call's process outlives its caller for a moment, and so does what it holds.
    return entry.slot in _OURS or _holder(file, entry.slot) is not None or any(map(_runs, entry.leased))


def _holder(file: int, slot: int) -> int | None:
    """Return the other process that has a number; None where none has it. In another namespace, its pid is 0."""
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _LIVES + slot, 1, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, query))
    return None if kind == fcntl.F_UNLCK else int(pid)


def _runs(one: LeasedGpu) -> bool:
    return one.pid is not None and one.began is not None and began(one.pid) == one.began


def _lock(file: int, start: int, timeout: float) -> bool:
    """Lock a byte; tell whether that worked in time."""
    deadline = time.monotonic() + timeout
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
        return Page(**fields, entries={entry.number: entry for entry in entries})
    except (TypeError, ValueError, KeyError, AttributeError):  # it was written by another program
        return Page()


def _entry(*, requested: list[str], leased: list[dict[str, Any]], **rest: Any) -> LeaseEntry:
    made = (LeasedGpu(**{**one, "known": tuple(one["known"])}) for one in leased)
    return LeaseEntry(requested=tuple(requested), leased=tuple(made), **rest)


_TRIES = 3  # to read without a lock: a text may be half written now and then

_files: list[int] = []
"""The files that were read. They stay open: to close one would release the locks that this process may have on it."""


def leases(place: BoardDirectory) -> Iterator[Promise]:
    """Give what each call has leased, in the order of asking, to processes that make no calls; nothing is changed.

    A call that waits has nothing yet, and takes its turn.

    Args:
        place: where the table is.
    """
    file = _file(place)
    for entry in () if file is None else _entries(file):
        for one in entry.leased:
            yield Promise(gpu=one.gpu, pid=one.pid, size=one.size, asked=entry.came)


def _entries(file: int) -> list[LeaseEntry]:
    """Return the calls whose processes are alive."""
    for _ in range(_TRIES):
        page, text = written(file)
        if text:
            return [entry for entry in page.entries.values() if is_alive(file, entry)]
    return []


def _file(place: BoardDirectory) -> int | None:
    """Return the descriptor of the table; None where there is none."""
    for file in _files:
        if place.holds(NAME, file):
            return file
    with contextlib.suppress(FileNotFoundError, MonitorError):
        _files.append(place.open(NAME, os.O_RDWR))
        return _files[-1]
    return None
