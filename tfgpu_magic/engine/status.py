"""`status`, and the answer of `%tf_gpu`: one look at the GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfgpu_magic.engine import other_processes
from tfgpu_magic.frameworks import self_report
from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.answer import Answer, Part, gpus, headline, processes, sentence
from tfgpu_magic.ground.process_kind import noun
from tfgpu_magic.policy import promises
from tfgpu_magic.policy.process_state import ProcessState
from tfgpu_magic.tell import fetch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.ground.message import Message
    from tfgpu_magic.ground.report import Report
    from tfgpu_magic.ground.rows import Table
    from tfgpu_magic.ground.snapshot import Snapshot


ONCE = "This is one look. The table that is drawn anew each second needs a notebook; here, say it again."


@dataclass(frozen=True, slots=True, repr=False)
class Status(Answer):
    """The rows of one look.

    Attributes:
        table: the rows.
        here: the kind of the viewing process: notebook, session or program.
    """

    table: Table
    here: str = "notebook"

    def once(self) -> Status:
        """Return the same with a note that it is not a live table."""
        return replace(self, table=replace(self.table, notes=(*self.table.notes, ONCE)))

    def _parts(self) -> Iterable[Part | Message | str]:
        table = self.table
        if table.error:
            yield headline(phrases.clean(table.error, longest=400))
            if table.absent:
                yield sentence(phrases.TRY, phrases.TRY_COMMAND)
        else:
            yield gpus(table, self.here)
            if table.processes:
                yield processes(table)
            yield from phrases.no_processes(table)
        yield from phrases.remarks(table)


def status(timeout: float = 1.5) -> Status:
    """Return what each process holds of the GPUs, and what this process's TensorFlow does with them.

    Args:
        timeout: seconds to wait for the driver.

    Returns:
        The status, even where there is no driver or it hangs; then it says so. TensorFlow is not started.
    """

    def report(snapshot: Snapshot) -> Report:
        own = self_report.report(snapshot)
        found = other_processes.observed(snapshot, ProcessState()).promises
        notes = promises.standing(snapshot.gpus, found, lambda: other_processes.names(snapshot, found))
        return replace(own, notes=(*own.notes, *notes))

    return shown(fetch.table(report, timeout=timeout))


def shown(table: Table) -> Status:
    """Make the result of `%tf_gpu` from a table."""
    return Status(table, noun())
