"""The ledger of this user's claims: one small file that all processes share, and that is never replaced.

A process reads and writes it under an exclusive lock. Each process also holds a lock on a byte of the file that is
its own, and the system releases that when the process ends, however it ends: so it is known without pids which
processes are alive. A call's claim is there as long as its caller or its worker is. If the board's directory cannot be
had, each process has a ledger of its own.
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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Literal

from tfgpu_magic.claims.claim import Claim, LedgerState
from tfgpu_magic.errors import MonitorError, Refused
from tfgpu_magic.ground.message import msg
from tfgpu_magic.ground.process_kind import noun
from tfgpu_magic.machine.board.directory import BoardDirectory, close_own
from tfgpu_magic.machine.board.report_files import lock_owner

NAME = "claims"
VERSION = 1
"""The version of what the file says; of another one nothing is read. The bytes that are locked are the same in all."""
LOCK_TIMEOUT = 3.0
"""Seconds to wait for the lock. A process that has it longer is stopped, or hangs; the others go on without it."""
_RENEWAL_TIMEOUT = 0.1
"""Seconds that a thread in the background waits for it, which keeps the lines of its own process waiting meanwhile."""

_HEAD = struct.Struct("<II")  # length and checksum of the JSON that follows
_MAX_SIZE = 2**20  # bytes
_MUTEX, _LIVES = 2**40, 2**41  # bytes that are locked, far beyond those that are written
_SLOTS = 4096
_TRIES = 3  # to read without the lock: a text may be half written now and then


class ClaimLedger:
    """The ledger. One for a process: two would release each other's locks.

    Attributes:
        slot: the number of this process.
        deciding: an item for each decision that is being made, of which this process's claim follows.
    """

    def __init__(self) -> None:
        self.slot, self.deciding = 0, list[None]()
        self._state, self._lock = LedgerState(), threading.RLock()  # the file's lock keeps out no thread
        self._directory: BoardDirectory | None = None
        self._file, self._is_written = -1, True
        self._over = set[int]()  # claims of this process that are to be removed

    @contextlib.contextmanager
    def transaction(self, timeout: float | None = None) -> Iterator[LedgerState]:
        """Yield the content under the lock, without the claims of processes that have ended; write what is changed.

        What cannot be written, as on a full disk, is not seen by other processes; this one keeps it, and writes it when
        it can. It does not write without the lock, which would undo what other processes write at the same time.

        Args:
            timeout: the most seconds to wait for the lock; None is `LOCK_TIMEOUT`.

        Raises:
            Refused: processes that live have written it in another version.
        """
        with self._lock:
            self._ensure_open()
            locked = _lock_byte(self._file, _MUTEX, LOCK_TIMEOUT if timeout is None else timeout)
            try:
                state, before = self._read()
                state.locked, over = locked, self._over.copy()
                for claim in [claim for claim in state.claims.values() if claim.slot == self.slot]:
                    if claim.number in over:
                        state.drop(claim.number)
                yield state
                self._state, text = state, _to_json(state)
                self._is_written = text == before or (locked and self._write(text, before))
                self._over -= over
            finally:
                if locked:
                    fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _MUTEX)

    @contextlib.contextmanager
    def queued(self, kind: Literal["call", "wait"], gpus: Collection[str] = ()) -> Iterator[int]:
        """Have a claim of a kind for a block, which waits for one of these GPUs; yield its number."""
        number = 0
        try:
            with self.transaction() as state:
                number = state.next_number()
                claim = Claim(number=number, slot=self.slot, seen=time.monotonic(), kind=kind, requested=tuple(gpus))
                state.put(claim)
            yield number
        finally:
            self.end(number)

    def end(self, number: int) -> None:
        """Remove a claim of this process; an interrupt meanwhile is raised when that is done."""
        self._over.add(number)  # before anything that can be interrupted: any later turn removes it
        try:
            with self.transaction():
                pass
        except KeyboardInterrupt:
            with self.transaction():
                pass
            raise

    def read(self) -> LedgerState:
        """Return the content as it is now, without the lock, for a view of it.

        Raises:
            Refused: as `transaction`.
        """
        with self._lock:
            self._ensure_open()
            return self._read()[0]

    def own_claim(self) -> Claim | None:
        """Return what this process itself has, as far as it knows; None while a decision is being made or applied."""
        return None if self.deciding else self._state.own_claim(self.slot)

    def renew(self, before: Claim | None, sizes: Mapping[str, int | None]) -> None:
        """Write what this process itself has into the ledger if that has changed, and none of its threads decides.

        Where another process has the lock, the next call writes it.

        Args:
            before: what it had when it was found what it has.
            sizes: that, as `Page.set_own` takes it.
        """
        with contextlib.suppress(Refused), self._lock:
            self._ensure_open()
            if sizes != ({} if before is None else before.had) or not self._is_written:
                with self.transaction(_RENEWAL_TIMEOUT) as state:
                    if not self.deciding and state.own_claim(self.slot) is before:
                        state.set_own(self.slot, sizes)

    def note_wanted(self, gpus: Collection[str]) -> None:
        """Note that this process has found no room on these GPUs: other processes may park theirs."""
        with contextlib.suppress(Refused):
            if gpus:
                with self.transaction() as state:
                    state.note_wanted(self.slot, gpus)

    def wanted_by_others(self) -> set[str]:
        """Return the GPUs on which another process has found no room lately."""
        with contextlib.suppress(Refused):
            return self.read().wanted_by_others(self.slot)
        return set()

    def forget(self) -> None:
        """Drop the parent's number and claims, in a process that was forked from the ledger's own."""
        self._state, self._lock, self.deciding, self._over = LedgerState(), threading.RLock(), [], set()
        self._close()

    def _ensure_open(self) -> None:
        """Open the file if it is not open, or was removed; where there is no directory, one that nobody else has."""
        if self._directory is not None and self._directory.is_there() and self._directory.has(NAME, self._file):
            return
        for shared in (True, False):
            self._close()
            with contextlib.suppress(MonitorError, OSError):
                self._directory = BoardDirectory() if shared else None
                flags = os.O_RDWR | os.O_CREAT
                self._file = os.memfd_create(NAME) if self._directory is None else self._directory.open(NAME, flags)
                self._file_status = os.fstat(self._file)
                if (slot := self._new_slot()) is not None:
                    own = {one.number: one if one.slot == slot else replace(one, slot=slot) for one in self._own()}
                    self._state.claims, self.slot, self._is_written = own, slot, False
                    return

    def _new_slot(self) -> int | None:
        """Return a number that no process has, alive or dead and still in the ledger; None if there is none."""
        taken = set[int | None]()
        with contextlib.suppress(Refused):  # which the next turn says
            taken = {slot for claim in self._read_file()[0].claims.values() for slot in (claim.slot, claim.worker)}
        free = (slot for slot in range(_SLOTS) if slot not in taken and _lock_byte(self._file, _LIVES + slot, 0.0))
        return next(free, None)

    def _own(self) -> list[Claim]:
        return [claim for claim in self._state.claims.values() if claim.slot == self.slot]

    def _close(self) -> None:
        if self._file >= 0:
            close_own(self._file, self._file_status)
        if self._directory is not None:
            self._directory.close()
        self._directory, self._file = None, -1

    def _read(self) -> tuple[LedgerState, bytes]:
        """Return the content, without the claims of processes that have ended, and its text."""
        state, text = self._read_file()
        own = {claim.number: claim for claim in self._own()}
        for number in own.keys() & state.claims.keys():
            if own[number].worker != state.claims[number].worker:  # it has joined
                own[number] = replace(own[number], worker=state.claims[number].worker)
        found = state.claims.items()
        theirs = {number: claim for number, claim in found if number not in own and claim.slot != self.slot}
        state.claims = dict(sorted((theirs | own).items()))
        state.last = max(state.last, *own, 0)
        state.ended, state.changes = max(state.ended, self._state.ended), max(state.changes, self._state.changes)
        for number, claim in theirs.items():
            caller, worker = self._pid(claim.slot), self._pid(claim.worker)
            if caller is None and worker is None:  # a worker outlives its caller for a moment, and so does its memory
                state.drop(number)
            else:
                state.change(number, pid=worker if claim.kind == "call" else caller)
        return state, text

    def _pid(self, slot: int | None) -> int | None:
        """Return the pid of the process that has a number, negative if it has none here; None if no process has it."""
        if slot is None:
            return None
        pid = os.getpid() if slot == self.slot else lock_owner(self._file, _LIVES + slot, 1)  # not its own lock
        return -slot - 1 if pid == 0 else pid

    def _read_file(self) -> tuple[LedgerState, bytes]:
        """Return the content of the file, and its text: empty where there is none, or it is half written."""
        for _ in range(_TRIES):
            text = _unframe(os.pread(self._file, _HEAD.size + _MAX_SIZE, 0))
            if text:
                return self._parse(text), text
        return LedgerState(), b""  # its writer was killed while it wrote

    def _parse(self, text: bytes) -> LedgerState:
        try:
            fields = json.loads(text)
            version = fields.pop("version")
            if version == VERSION:
                claims = [Claim(**one) for one in fields.pop("claims")]
                wanted = {gpu: (who, at) for gpu, (who, at) in fields.pop("wanted").items()}
                return LedgerState(**fields, claims={claim.number: claim for claim in claims}, wanted=wanted)
        except (TypeError, ValueError, KeyError, AttributeError):  # it was written by another program
            return LedgerState()
        if lock_owner(self._file, _LIVES, _SLOTS) is None:  # those who wrote it have ended
            return LedgerState()
        others = "Programs of another version of tfgpu_magic run beside this one: restart this {here}, or else those."
        raise Refused(msg(others, here=noun()))

    def _write(self, text: bytes, before: bytes) -> bool:
        """Replace the text `before`; return whether that worked. No text is left half written."""
        try:
            if len(text) <= _MAX_SIZE and os.pwrite(self._file, _frame(text), 0) == _HEAD.size + len(text):
                return True
        except OSError:  # the disk is full, or a limit is reached, or it is gone
            pass
        with contextlib.suppress(OSError):
            os.pwrite(self._file, _frame(before), 0)  # there was room for it
        return False


LEDGER = ClaimLedger()
"""The ledger of this process."""

os.register_at_fork(after_in_child=LEDGER.forget)


def _lock_byte(file: int, start: int, timeout: float) -> bool:
    """Lock a byte; return whether that worked in time."""
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


def _to_json(state: LedgerState) -> bytes:
    """Return the content as JSON: without pids, which are others in other namespaces."""
    claims = [asdict(replace(claim, pid=None)) for claim in state.claims.values()]
    fields = {"version": VERSION, "last": state.last, "ended": state.ended, "changes": state.changes}
    return json.dumps({**fields, "wanted": state.wanted, "claims": claims}, separators=(",", ":")).encode()


def _frame(text: bytes) -> bytes:
    """Return a text as the file has it, which is never replaced: after its length and its checksum."""
    return _HEAD.pack(len(text), zlib.crc32(text)) + text


def _unframe(data: bytes) -> bytes | None:
    """Return the text of what `_frame` returned; None when it is half written, or missing."""
    if len(data) < _HEAD.size:
        return None
    length, check = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + length]
    return text if len(text) == length and zlib.crc32(text) == check else None
