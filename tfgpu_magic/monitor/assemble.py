"""Makes the one table that all views show from the driver's snapshot, the owners and kernels' reports. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.monitor import parked_rows
from tfgpu_magic.monitor.owners import notebook_of
from tfgpu_magic.monitor.rows import Table
from tfgpu_magic.monitor.tabulate import make, self_reported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfgpu_magic.monitor.owners import Notebook, Owner
    from tfgpu_magic.monitor.report import Report
    from tfgpu_magic.monitor.snapshot import Snapshot
    from tfgpu_magic.parking.record import Entry


def assemble(
    snapshot: Snapshot,
    owners: Mapping[int, Owner],
    own: Report | None,
    reports: Sequence[Report],
    notebooks: Mapping[int, Notebook],
    unused: Mapping[tuple[str, int], float] | None = None,
    parked: Sequence[Entry] = (),
) -> Table:
    """Make the table from the driver's figures, and where there are none, from the kernels' reports.

    Args:
        snapshot: the driver's figures.
        owners: the owner of each pid in it.
        own: this kernel's own report.
        reports: the other kernels' reports.
        notebooks: what is known of kernels, by pid, as `together` returns it.
        unused: since when memory is held without use, as `unused.Record.unused` returns it.
        parked: what the parker's record has.
    """
    made = make(snapshot, owners, own, reports, notebooks, unused, parked)
    return self_reported(made, own, parked_rows.silenced(reports, parked), notebooks)


def together(reports: Iterable[Report], served: Mapping[int, Notebook]) -> dict[int, Notebook]:
    """Join what kernels report of themselves and what their server has of them, by pid.

    Names and paths are the server's. Since when a kernel is idle is the kernel's own figure: a server counts whatever
    passes for activity, a page that connects too. A kernel is busy if either reports it: one that runs no cell may be.

    Args:
        reports: the kernels' reports.
        served: what a server has of its kernels, by pid.
    """
    known = {one.pid: notebook_of(one) for one in reports}
    for pid, notebook in served.items():
        own = known.get(pid)
        if own is not None and own.state and notebook.state in ("idle", "busy", ""):
            state = "busy" if "busy" in (own.state, notebook.state) else own.state
            known[pid] = replace(notebook, state=state, active=own.active)
        else:
            known[pid] = notebook
    return known
