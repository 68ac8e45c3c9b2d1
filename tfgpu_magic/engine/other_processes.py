"""Reads for a plan what this user's other processes have picked, and may yet take, of the GPUs; and names them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.ground import host, phrases
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFiles
from tfgpu_magic.policy import promises

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfgpu_magic.ground.report import Report
    from tfgpu_magic.ground.snapshot import Snapshot
    from tfgpu_magic.policy.policy import Policy
    from tfgpu_magic.policy.process_state import ProcessState
    from tfgpu_magic.policy.promises import Promise


LOCK = "pick"
"""The file whose lock a process holds from when it reads what others may take until it has reported its own part."""
LOCK_TIMEOUT = 10.0
"""Seconds to wait for the lock. A holder that takes longer hangs, and two kernels on one GPU are the lesser evil."""

_LEASES = "leases-"
"""The beginning of the lease table's name."""


class OtherProcesses(NamedTuple):
    """What the user's other processes report of themselves, and what isolated calls have leased.

    Attributes:
        reports: the reports of kernels and programs.
        leases: what calls have leased, as promises; without what they hold.
    """

    reports: tuple[Report, ...] = ()
    leases: tuple[Promise, ...] = ()

    def added_to(self, process: ProcessState, snapshot: Snapshot) -> ProcessState:
        """Return the state of a process with what others have picked, and may yet take, of these GPUs."""
        promised = promises.gather(snapshot, self.reports, self.leases)
        return process._replace(claims=picks(self.reports), promises=promised)


def now() -> OtherProcesses:
    """Read what the others have now, in less than a millisecond or two; nothing where the board cannot be used."""
    with _board() as place:
        return _read(place)


def observed(snapshot: Snapshot) -> ProcessState:
    """Return the state of this process on these GPUs, with what others have picked and may yet take."""
    return now().added_to(RUNTIME.observe(snapshot.gpus), snapshot)


@contextlib.contextmanager
def settling(policy: Policy) -> Iterator[OtherProcesses]:
    """Give what `now` returns.

    If the policy depends on it, or limits what this process takes, no other process of this user settles one until this
    one has reported what it settled. A report takes some milliseconds to make, the first one more: the caller waits for
    it only if others choose by it.
    """
    choice = policy.choice
    wait = choice is not None and choice.picks
    if not (wait or any(request.limited for request in policy.memory)):
        yield now()
        return
    with contextlib.ExitStack() as stack:
        with _board() as place:
            if place is not None:
                with contextlib.suppress(MonitorError):
                    _LOCK.take(place)
                    stack.callback(_LOCK.release)
            yield _read(place)
        release = stack.pop_all().close
    host.announce(release, wait=wait)


def picks(reports: Iterable[Report]) -> Mapping[str, float]:
    """Return how many of the processes that report use or will use each GPU, by UUID."""
    found: dict[str, float] = {}
    for report in reports:
        for use in report.uses:  # a kernel reports the GPUs that it uses or will use, and no others
            found[use.gpu] = found.get(use.gpu, 0.0) + 1.0
    return found


def names(snapshot: Snapshot, promises: Sequence[Promise] = ()) -> dict[int, str]:
    """Return the name of each process by its pid, as the table shows it.

    Args:
        snapshot: the GPUs with the processes that hold memory.
        promises: those of other processes, which need hold none.
    """
    from tfgpu_magic.tell import fetch  # only a refusal or a note names processes

    holding = {process.pid for process in snapshot.processes}
    waiting = {promise.pid for promise in promises if promise.pid is not None} - holding
    found = fetch.owners(snapshot, waiting, call=host.in_worker)  # what called it is this notebook to its user
    return {pid: phrases.plain(owner.text, longest=120) for pid, owner in found.items()}


@contextlib.contextmanager
def _board() -> Iterator[BoardDirectory | None]:
    """Give the board's directory; None where it cannot be used."""
    with contextlib.ExitStack() as stack:
        place: BoardDirectory | None = None
        with contextlib.suppress(MonitorError):
            place = stack.enter_context(BoardDirectory())
        yield place


class _Lock:
    """The lock of this process, which has it until all that it has settled is reported, or it ends, however it does."""

    def __init__(self) -> None:
        self._pid, self._alone = os.getpid(), threading.Lock()
        self._fd, self._users = -1, 0

    def take(self, place: BoardDirectory) -> None:
        """Take the lock, or go on without it after `LOCK_TIMEOUT`."""
        if self._pid != os.getpid():  # a fork has no lock
            self.__init__()  # type: ignore[misc]
        with self._alone:
            if not self._users:
                self._fd = place.open(LOCK, os.O_RDWR | os.O_CREAT)
                end = time.monotonic() + LOCK_TIMEOUT
                while not _locked(self._fd) and time.monotonic() < end:
                    time.sleep(0.01)
            self._users += 1

    def release(self) -> None:
        """Undo one `take`."""
        with self._alone:
            self._users -= 1
            if not self._users:
                os.close(self._fd)


_LOCK = _Lock()


def _locked(fd: int) -> bool:
    """Lock a file, and tell whether that is done."""
    with contextlib.suppress(OSError):
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _read(place: BoardDirectory | None) -> OtherProcesses:
    if place is None:
        return OtherProcesses()
    reports = ReportFiles(place).read()
    if not place.names(_LEASES):  # no isolated call was ever made here
        return OtherProcesses(reports)
    from tfgpu_magic.leases import lease_file  # few processes make isolated calls, and the others need none of it

    leases = [one for one in lease_file.leases(place) if one.pid != os.getpid()]
    return OtherProcesses(reports, tuple(leases))
