"""What `%tf_gpu` answers: one look at the GPUs, in a form that every front end can show."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.host import here
from tfgpu_magic.monitor.bounded import within
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.owners import Owners, notebook_of
from tfgpu_magic.monitor.place import Place
from tfgpu_magic.monitor.postings import Everywhere
from tfgpu_magic.monitor.rows import UNATTRIBUTED, Table, make
from tfgpu_magic.monitor.spoken import spoken
from tfgpu_magic.views import html, text, words

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from tfgpu_magic.monitor.owners import Notebook, Owner
    from tfgpu_magic.monitor.report import Report
    from tfgpu_magic.monitor.snapshot import Snapshot

    class _Printer(Protocol):
        """The part of IPython's pretty printer that is needed here."""

        def text(self, text: str) -> None: ...


ONCE = "This is one look. The table that is drawn anew each second needs a notebook; here, say it again."
HANGS = "Whose the processes are is not known: this machine's processes cannot be read at the moment."


@dataclass(frozen=True, slots=True, repr=False)
class Status:
    """The rows of one look; IPython shows them as HTML or as text, and `print` as text.

    Attributes:
        table: the rows.
        here: what the process that looks is called: notebook, session or program.
    """

    table: Table
    here: str = "notebook"

    def once(self) -> Status:
        """Return the same, and say that it is no live table."""
        return replace(self, table=replace(self.table, notes=(*self.table.notes, ONCE)))

    def __repr__(self) -> str:
        return text.render(self.table, here=self.here)

    def _repr_pretty_(self, printer: _Printer, cycle: bool) -> None:
        printer.text("Status(...)" if cycle else repr(self))

    def _repr_html_(self) -> str:
        return html.render(self.table, here=self.here)


def status(report: Callable[[Snapshot], Report] | None = None, *, timeout: float = 1.5) -> Status:
    """Look at the GPUs now, and find whose memory it is.

    Args:
        report: asks this kernel what it says of its own TensorFlow; None leaves that out.
        timeout: seconds to wait for the driver, and as long again for this machine's processes.

    Returns:
        The status, even where there is no driver or it hangs: then it says so.
    """
    snapshot = look(timeout)
    known = within(timeout, lambda: _known({process.pid for process in snapshot.processes}))
    owners, reports, notebooks = known or ({}, (), {})
    own = report(snapshot) if report else None
    table = spoken(make(snapshot, owners, own, reports, notebooks), own, reports, notebooks)
    if known is None:
        table = replace(table, notes=(*(note for note in table.notes if note != UNATTRIBUTED), HANGS))
    return Status(words.called(table, here()), here())


def _known(pids: set[int]) -> tuple[dict[int, Owner], tuple[Report, ...], dict[int, Notebook]]:
    """Find the owners of pids, what other kernels say, and of which notebooks."""
    reports = _reports()
    notebooks = {one.pid: notebook_of(one) for one in reports}
    return Owners().find(pids, notebooks), reports, notebooks


def _reports() -> tuple[Report, ...]:
    """What other kernels say of themselves; nothing where the board cannot be used."""
    with contextlib.suppress(MonitorError), Place() as place:
        everywhere = Everywhere(place)
        try:
            return everywhere.read()
        finally:
            everywhere.close()
    return ()
