"""Reads for a plan what this user's other processes have picked, and may yet take, of the GPUs; and names them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic import host
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.model.parts import parts
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.report_files import ReportFiles
from tfgpu_magic.policy import promises

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfgpu_magic.model.report import Report
    from tfgpu_magic.model.snapshot import Snapshot
    from tfgpu_magic.policy.policy import Policy
    from tfgpu_magic.policy.process_state import ProcessState
    from tfgpu_magic.policy.promises import Promise


LOCK = "pick"
"""The file whose lock a process holds while it picks GPUs, or settles a fair part."""
LOCK_TIMEOUT = 3.0
"""Seconds to wait for the lock. A holder that takes longer hangs, and two kernels on one GPU are the lesser evil."""

_LEASES = "leases-"
"""The beginning of the lease table's name."""


class OtherProcesses(NamedTuple):
    """What the user's other processes report of themselves, and what isolated calls have leased.

    Attributes:
        reports: the reports of kernels and programs.
        leases: what calls have leased, as promises; without what they hold.
        parked: the pids of those whose GPU state is in host memory.
    """

    reports: tuple[Report, ...] = ()
    leases: tuple[Promise, ...] = ()
    parked: frozenset[int] = frozenset()

    def added_to(self, process: ProcessState, snapshot: Snapshot) -> ProcessState:
        """Return the state of a process with what others have picked, and may yet take, of these GPUs."""
        # What is parked is promised nothing: it comes back when there is room. For a pick it counts where that will be.
        promised = promises.gather(snapshot, self.present, self.leases)
        return process._replace(claims=picks(self.reports), promises=promised)

    @property
    def present(self) -> list[Report]:
        """The reports of those that are not parked."""
        return [report for report in self.reports if report.pid not in self.parked]


def now() -> OtherProcesses:
    """Read what the others have now, in less than a millisecond or two; nothing where the board cannot be used."""
    with _board() as place:
        return _read(place)


def observed(snapshot: Snapshot) -> ProcessState:
    """Return the state of this process on these GPUs, with what others have picked and may yet take."""
    return now().added_to(RUNTIME.observe(snapshot.gpus), snapshot)


@contextlib.contextmanager
def settling(policy: Policy) -> Iterator[OtherProcesses]:
    """Give what `now` returns. If the policy depends on it, no other process of this user settles one meanwhile."""
    choice = policy.choice
    if not (choice is not None and choice.picks) and not policy.divides:
        yield now()
        return
    with _board() as place, contextlib.ExitStack() as stack:
        if place is not None:
            with contextlib.suppress(MonitorError):
                stack.callback(os.close, fd := place.open(LOCK, os.O_RDWR | os.O_CREAT))
                _lock(fd)
        yield _read(place)
        for announce in parts("announce"):
            announce()


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
    from tfgpu_magic.monitor.table import fetch  # only a refusal or a note names processes

    holding = {process.pid for process in snapshot.processes}
    waiting = {promise.pid for promise in promises if promise.pid is not None} - holding
    found = fetch.owners(holding, waiting, call=host.in_worker)  # what called it is this notebook to its user
    told, this = "this notebook", f"this {host.caller or host.here()}"
    return {
        pid: owner.text if owner.who != "this" or this == told else owner.text.replace(told, this, 1)
        for pid, owner in found.items()
    }


@contextlib.contextmanager
def _board() -> Iterator[BoardDirectory | None]:
    """Give the board's directory; None where it cannot be used."""
    with contextlib.ExitStack() as stack:
        place: BoardDirectory | None = None
        with contextlib.suppress(MonitorError):
            place = stack.enter_context(BoardDirectory())
        yield place


def _lock(fd: int) -> None:
    """Take the lock; the system releases it when this process ends, however it does."""
    end = time.monotonic() + LOCK_TIMEOUT
    while time.monotonic() < end:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.01)
        else:
            return


def _read(place: BoardDirectory | None) -> OtherProcesses:
    if place is None:
        return OtherProcesses()
    reports = ReportFiles(place).read()
    parked = frozenset(one.pid for one in reports if one.away)
    if not place.names(_LEASES):  # no isolated call was ever made here
        return OtherProcesses(reports, parked=parked)
    from tfgpu_magic.leases import lease_file  # few processes make isolated calls, and the others need none of it

    leases = [one for one in lease_file.leases(place) if one.pid != os.getpid()]
    return OtherProcesses(reports, tuple(leases), parked)
