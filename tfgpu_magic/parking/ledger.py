"""The helper's own copy of the record: every change is checked against `states`, and written before what it announces.

A change that cannot be written, as on a full disk, is kept and written later: only what is begun has to be written
first. Without it, the driver's state is enough to set a process right.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.parking import record
from tfgpu_magic.parking.record import Entry, Record
from tfgpu_magic.parking.states import FOLLOWS, UNSETTLED, Phase

if TYPE_CHECKING:
    from tfgpu_magic.monitor.board.directory import BoardDirectory

Key: TypeAlias = tuple[int, int]
"""A process's pid and its start."""


_AWAY = frozenset({Phase.PARKED, Phase.RESTORING, Phase.UNLOCKING})


class Ledger:
    """What is parked, as the helper knows it.

    Args:
        place: where the record is.
        before: what earlier helpers have left, there or elsewhere.
    """

    def __init__(self, place: BoardDirectory, before: Record) -> None:
        self._place = place
        self._record = replace(before, entries={key: replace(one, wanted=False) for key, one in before.entries.items()})
        self._written = False
        self.save()

    @property
    def record(self) -> Record:
        """All of it."""
        return self._record

    def entry(self, key: Key) -> Entry | None:
        """Return what is known of a process."""
        return self._record.entries.get(key)

    def unsettled(self) -> list[Key]:
        """Return the processes of which it is not known what became of the last call."""
        return [key for key, entry in self._record.entries.items() if entry.phase in UNSETTLED]

    def busy(self) -> bool:
        """Tell whether anything is parked, or not settled."""
        return any(entry.parked for entry in self._record.entries.values())

    def on_its_way_out(self) -> int:
        """Return the bytes of host memory that are being filled: how far each copy has come is not known."""
        entries = self._record.entries.values()
        return sum(entry.size for entry in entries if entry.phase is Phase.CHECKPOINTING)

    def begin(self, entry: Entry) -> Entry:
        """Write a process down of which something is to be begun.

        Raises:
            MonitorError: that cannot be written, so nothing may be begun.
        """
        before = self._record
        self._check(before.entries.get((entry.pid, entry.began)), entry.phase)
        self._record = before.put(entry)
        try:
            record.write(self._place, self._record)
        except MonitorError:
            self._record = before
            raise
        return entry

    def move(self, entry: Entry, phase: Phase, **changes: object) -> Entry:
        """Write down that a process is in another phase from now on, and return it."""
        self._check(entry, phase)
        on_its_way = phase in _AWAY and entry.phase in _AWAY
        since = entry.since if on_its_way else time.time()
        settled = {"trouble": "", "wanted": False}
        changed = replace(entry, phase=phase, since=since, **{**settled, **changes})  # type: ignore[arg-type]
        self._put(changed)
        return changed

    def note(self, entry: Entry, trouble: str) -> Entry:
        """Write down why a process's phase does not go on."""
        if entry.trouble == trouble:
            return entry
        changed = replace(entry, trouble=trouble)
        self._put(changed)
        return changed

    def want(self, key: Key, *, wanted: bool) -> None:
        """Write down whether somebody waits for a parked process to come back."""
        entry = self.entry(key)
        if entry is not None and entry.phase is Phase.PARKED and entry.wanted is not wanted:
            self._put(replace(entry, wanted=wanted))

    def forget(self, entry: Entry) -> None:
        """Take a process out of the record."""
        self._record = self._record.drop(entry.pid, entry.began)
        self._written = False
        self.save()

    def measured(self, *, out: float | None = None, back: float | None = None) -> None:
        """Write down how fast something was moved, in bytes a second."""
        self._record = replace(self._record, rates=self._record.rates.after(out=out, back=back))
        self._written = False

    def sweep(self) -> None:
        """Drop the processes that have ended, and write what is not written yet."""
        living = self._record.living()
        if len(living.entries) < len(self._record.entries):
            self._record, self._written = living, False
        self.save()

    def save(self) -> bool:
        """Write what is not written yet; tell whether everything is."""
        if not self._written:
            try:
                record.write(self._place, self._record)
            except MonitorError:
                return False
            self._written = True
        return True

    def _put(self, entry: Entry) -> None:
        self._record, self._written = self._record.put(entry), False
        self.save()

    def _check(self, before: Entry | None, phase: Phase) -> None:
        phase_before = None if before is None else before.phase
        if phase is not phase_before and phase not in FOLLOWS[phase_before]:
            raise AssertionError(f"{phase} cannot follow {phase_before}")
