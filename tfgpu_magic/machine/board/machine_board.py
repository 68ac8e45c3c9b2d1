"""The machine's board: one for all users, which a service writes (`lab.service`) and each viewer may read.

It lies where only root can have made a place, and is not read where a user could have written to it. Readers write
nothing there, and lock nothing: so nobody is in the way of anybody.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.process_kind import SIMULATED
from tfgpu_magic.machine.board import history
from tfgpu_magic.machine.board.directory import BoardDirectory, devices, view_id
from tfgpu_magic.machine.board.history import HISTORY, History
from tfgpu_magic.machine.board.snapshot_file import SNAPSHOT, SnapshotReader
from tfgpu_magic.machine.driver.schedule import ASLEEP
from tfgpu_magic.machine.owners.pids import is_alive, start_time

if TYPE_CHECKING:
    from tfgpu_magic.machine.board.snapshot_file import Published, Reading

PLACE = Path("/run/tfgpu_magic")
"""Where it is; a simulated machine's is beside its state. Only root makes folders in /run."""
SYSTEM_USERS = 999
"""The highest number of a system's user, as `login.defs` has it: no person has one of these."""
GIVEN_UP_AFTER = 3.5
"""Seconds without a sign of a service that has ended until viewers have collectors of their own: it may restart."""
HIDDEN_FOR = 90.0
"""Seconds without a sign after which a service that /proc hides has ended: its pid may be another process's.

One that hangs ends itself sooner, after `collector.READING_TIMEOUT`.
"""
BACK_AFTER = 2.0
"""Seconds for which a board must be true until viewers that have a collector read it again."""
FIND_EVERY = 1.0
"""Seconds between two checks whether it is there, and of the GPUs and pids that are seen here."""


def folder() -> Path:
    """Return the board's directory on this machine."""
    machine = os.environ.get(SIMULATED)
    return PLACE if machine is None else Path(f"{machine}.run")


class MachineDirectory(BoardDirectory):
    """The open directory of the machine's board. Its files have their plain names.

    Raises:
        FileNotFoundError: there is none.
        MonitorError: it is a link, or of a person, or others can write to it or beside it.
    """

    def __init__(self) -> None:
        path, self.passed_over = folder(), ""
        self.simulated = SIMULATED in os.environ
        self._path = str(path)
        path.lstat()  # where there is none, nothing is wrong
        above = path.parent.stat()
        if above.st_uid not in (0, os.geteuid() if self.simulated else 0) or above.st_mode & 0o022:
            raise MonitorError(f"{path.parent} can be written to by others than root.")
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise MonitorError(f"{path} is not a directory that can be read ({error.strerror}).") from error
        self._is = os.fstat(self._fd)
        if trouble := self._why_not_trusted(self._is):
            self.close()
            raise MonitorError(f"{path} {trouble}")

    @property
    def owner(self) -> int:
        """The number of the user who writes here."""
        return self._is.st_uid

    def _suffix(self, name: str) -> str:  # noqa: ARG002  another directory's files are of a boot and of a view
        return ""

    def _mode_of_new(self, name: str) -> int:
        # No lock on what others can open: they could keep it.
        return 0o644 if name.removeprefix("new-").startswith((SNAPSHOT, HISTORY)) else 0o600

    def _is_trusted(self, found: os.stat_result) -> bool:
        # Others cannot make a link here; one elsewhere, which any reader may make, must keep nobody from reading.
        return found.st_uid == self.owner and not found.st_mode & 0o022

    def _why_not_trusted(self, found: os.stat_result) -> str:
        if not stat.S_ISDIR(found.st_mode):
            return "is not a directory."
        if found.st_uid > SYSTEM_USERS and not (self.simulated and found.st_uid == os.geteuid()):
            return f"belongs to user {found.st_uid}, who is a person and no service."
        return "can be written to by others than its owner." if found.st_mode & 0o022 else ""


class MachineBoard:
    """The machine's board, as a viewer reads it as long as it is true. Not thread-safe.

    Attributes:
        why_not: why a board that is there is not read; empty where there is none, or it is.
    """

    def __init__(self) -> None:
        self.why_not = ""
        self._last: Reading | None = None
        self._place: MachineDirectory | None = None
        self._reader: SnapshotReader  # it is there as long as the place is
        self._view = 0
        self._find_at = 0.0
        self._read = True  # a first look waits for nothing
        self._true_since: float | None = None

    def read(self) -> Reading | None:
        """Read the board now; return None if it cannot be used, so that the viewer needs a collector of its own.

        A service that lives and does not answer hangs in the driver, where others would hang beside it: then this is
        its last look, which says since when it is stale.
        """
        now = time.monotonic()
        self._find(now)
        seen = self._read_board()
        if seen is None or seen.age is None or seen.stale_since is not None or self._has_failed(seen):
            self._true_since = None
            self._read = self._read and seen is not None and self._stays_valid(seen)
        else:
            self._true_since = now if self._true_since is None else self._true_since
            self._read = self._read or now - self._true_since >= BACK_AFTER
        if not self._read or seen is None:
            return None
        self._last = seen
        return seen

    @property
    def last_reading(self) -> Reading | None:
        """The last reading of a service that has ended, with its age now; None if nothing was ever read."""
        seen, published = self._last, self._reader.published if self._last else None
        if seen is None or published is None:
            return None
        since = seen.stale_since or max(published.beat, seen.snapshot.time)
        return seen._replace(age=time.time() - seen.snapshot.time, stale_since=since)

    def history(self) -> History | None:
        """Return what was used of each GPU in the last hour; None where the board is not read."""
        return history.read_history(self._place) if self._read and self._place is not None else None

    def close(self) -> None:
        """Close it. A later look opens it again."""
        if self._place is not None:
            self._place.close()
        self._place, self._find_at = None, 0.0

    def _find(self, now: float) -> None:
        """Open the directory, where it is there and to be trusted."""
        if now < self._find_at:
            return
        if self._place is not None and not self._place.is_there():
            self.close()
        self._find_at, self.why_not = now + FIND_EVERY, ""
        if self._place is None:
            try:
                self._place = MachineDirectory()
                self._reader = SnapshotReader(self._place)
            except FileNotFoundError:
                pass
            except (MonitorError, OSError) as error:
                self.why_not = str(error)
        if self._place is not None:
            self._view = view_id()

    def _read_board(self) -> Reading | None:
        if self._place is None:
            return None
        try:
            seen = self._reader.read()
        except (MonitorError, OSError) as error:
            self.why_not = str(error)
            return None
        published = self._reader.published
        if published is not None and published.view == self._view:
            return seen
        if published is not None:
            self.why_not = f"{self._place.path} is of {_why_other_view(published)}."
        return None

    def _has_failed(self, seen: Reading) -> bool:
        return seen.snapshot.error not in (None, ASLEEP)

    def _stays_valid(self, seen: Reading) -> bool:
        """Return whether a board that is not true is read on."""
        published, now = self._reader.published, time.time()
        if published is None or self._has_failed(seen):
            return False
        return now - published.beat < GIVEN_UP_AFTER or _has_writer(published, now)


def _why_other_view(published: Published) -> str:
    """Return which GPUs or pids the board's writer sees that are not this process's."""
    if start_time(published.pid) != published.began:
        return "other GPUs or other pids than are seen here"
    here = ", ".join(devices()) or "none"
    return (
        f"other GPUs than are seen here ({here}): the unit's DeviceAllow= hides one from the service, "
        "or a container or a job hides one from you"
    )


def _has_writer(published: Published, now: float) -> bool:
    """Return whether the process that wrote a board still exists; /proc, mounted with hidepid, may hide it."""
    start = start_time(published.pid)
    if start is not None:
        return start == published.began
    hidden = is_alive(published.pid) and not os.path.exists(f"/proc/{published.pid}/stat")
    return hidden and now - published.beat < HIDDEN_FOR


def read_published() -> Reading | None:
    """Return the machine's board as it is now, for a single reading; None if it cannot be used."""
    with contextlib.closing(MachineBoard()) as board:
        return board.read()
