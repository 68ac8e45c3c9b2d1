"""What the driver says, the owners and the kernels' own reports to the one table that all views are given: pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.owners import notebook_of
from tfgpu_magic.monitor.rows import Table, make
from tfgpu_magic.monitor.self_reported import self_reported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfgpu_magic.monitor.owners import Notebook, Owner
    from tfgpu_magic.monitor.report import Report
    from tfgpu_magic.monitor.snapshot import Snapshot


def assemble(
    snapshot: Snapshot,
    owners: Mapping[int, Owner],
    own: Report | None,
    reports: Sequence[Report],
    notebooks: Mapping[int, Notebook],
) -> Table:
    """Make the table: as the driver tells it, and where it tells nothing, as the kernels do.

    Args:
        snapshot: what the driver says.
        owners: the owner of each pid in it.
        own: what this kernel says of itself.
        reports: what other kernels say of themselves.
        notebooks: what is known of kernels, by pid, as `together` has it.
    """
    return self_reported(make(snapshot, owners, own, reports, notebooks), own, reports, notebooks)


def together(reports: Iterable[Report], served: Mapping[int, Notebook]) -> dict[int, Notebook]:
    """Put together what kernels and their server know of them, by pid.

    Names and paths are the server's. Since when a kernel is idle it knows itself: a server takes whatever passes for
    activity, a page that connects too. It is busy if either says so, since one that no cell keeps busy may be so.

    Args:
        reports: what kernels say of themselves.
        served: what a server knows of its kernels, by pid.
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
