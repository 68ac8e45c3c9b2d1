"""Decides beside what this user's other processes claim of the GPUs, under the lock of their ledger; and names them."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.claims.allocation import promises
from tfgpu_magic.claims.ledger import LEDGER, LOCK_TIMEOUT
from tfgpu_magic.errors import MonitorError, Refused
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.ground import TENSORFLOW, phrases, process_kind
from tfgpu_magic.ground.message import msg
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFiles
from tfgpu_magic.policy.process_state import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfgpu_magic.claims.claim import LedgerState
    from tfgpu_magic.ground.report import Report
    from tfgpu_magic.ground.snapshot import Snapshot
    from tfgpu_magic.policy.plan import Plan
    from tfgpu_magic.policy.process_state import ProcessState
    from tfgpu_magic.policy.promises import Promise


class Unnamed(Exception):
    """What is to be said names programs whose names have not been read."""


class ProcessNames:
    """The names of processes for what is decided under the ledger's lock: `Unnamed` ends it where they are not read.

    Attributes:
        found: what `names` has returned, which may take a second; None before.
    """

    found: Mapping[int, str] | None = None

    def __call__(self) -> Mapping[int, str]:
        """Return the names."""
        if self.found is None:
            raise Unnamed
        return self.found


def observed(snapshot: Snapshot, process: ProcessState | None = None) -> ProcessState:
    """Return the state of a process, by default this one, on these GPUs, with what others claim now."""
    process = RUNTIME.observe(snapshot.gpus) if process is None else process
    with contextlib.suppress(Refused):  # a view goes on without it; a decision is refused
        return _beside(process, LEDGER.read(), snapshot, _reports())
    return process


@contextlib.contextmanager
def decided(
    process: ProcessState,
    snapshot: Snapshot,
    decide: Callable[[ProcessState, Callable[[], Mapping[int, str]]], Plan],
) -> Iterator[Plan]:
    """Make a plan under the ledger's lock, and write its claim, which is taken back if the block that applies it fails.

    Args:
        process: the state of this process.
        snapshot: the GPUs, read before.
        decide: makes the plan, given the state with what others claim, and what returns the names of processes. Nothing
            in it may wait.

    Yields:
        The plan.

    Raises:
        Refused: there is none.
    """
    known, made, before = ProcessNames(), None, None
    LEDGER.deciding.append(None)
    try:
        while made is None:
            reports = _reports()
            with contextlib.suppress(Unnamed), LEDGER.transaction() as page:
                beside = _beside(process, page, snapshot, reports)
                made = decide(beside, known)
                if not page.locked:
                    made = replace(made, notes=(*made.notes, msg(_UNLOCKED, seconds=f"{LOCK_TIMEOUT:g}")))
                if not process_kind.in_worker:  # else its caller's call has the claim
                    imported = {one.name for one in process.frameworks if one.imported}
                    imported |= set() if process.stage is Stage.ABSENT else {TENSORFLOW}
                    before = page.set_own(LEDGER.slot, RUNTIME.with_other_frameworks(made).claims(imported))
            if made is None:
                known.found = names(snapshot, beside.promises)
        try:
            yield made
        except BaseException:
            with LEDGER.transaction() as state:
                state.set_own(LEDGER.slot, {} if before is None else before.had)
            raise
    finally:
        LEDGER.deciding.pop()
    process_kind.announce()


_UNLOCKED = "Another process of yours kept the ledger of claims for {seconds} s. What it asks for is not counted."


def _beside(
    process: ProcessState, state: LedgerState, snapshot: Snapshot, reports: Mapping[int, Report]
) -> ProcessState:
    """Return the state of a process with what others have picked, and may yet take, of these GPUs."""
    others = state.other_claims(LEDGER.slot)
    picks = Counter(gpu for claim in others if claim.kind == "policy" for gpu in claim.had)
    picks.update(process.claims)
    return process._replace(claims=picks, promises=promises(snapshot, others, reports))


def _reports() -> dict[int, Report]:
    """Return what the others report, by their numbers in the ledger; none where the board cannot be used."""
    with contextlib.suppress(MonitorError), BoardDirectory() as place:
        return {one.slot: one for one in ReportFiles(place).read() if one.slot is not None}
    return {}


def names(snapshot: Snapshot, promises: Sequence[Promise] = ()) -> dict[int, str]:
    """Return the name of each process by its pid, as the table shows it.

    Args:
        snapshot: the GPUs with the processes that hold memory.
        promises: those of other processes, which need hold none.
    """
    from tfgpu_magic.tell import fetch  # only a refusal or a note names processes

    holding = {process.pid for process in snapshot.processes}
    waiting = {promise.pid for promise in promises if promise.pid is not None} - holding
    found = fetch.owners(snapshot, waiting, call=process_kind.in_worker)  # what called it is this notebook to its user
    return {pid: phrases.clean(owner.text, longest=120) for pid, owner in found.items()}
