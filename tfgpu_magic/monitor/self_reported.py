"""Makes rows from kernels' reports alone, where the driver cannot be read and CUDA works all the same. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.rows import GpuRow, ProcessRow, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgpu_magic.monitor.owners import Notebook, Who
    from tfgpu_magic.monitor.report import Report

UNREAD = "the driver tells nothing of it; its notebooks do"

_SHORT = 12  # characters of a UUID: the GPU's number is not known


def self_reported(
    table: Table, report: Report | None, reports: Sequence[Report], notebooks: Mapping[int, Notebook] | None = None
) -> Table:
    """Return a table with the kernels that use GPUs, where there would be an error alone, as after a driver's update.

    Args:
        table: the rows that the driver's figures make.
        report: this kernel's own report.
        reports: the other kernels' reports.
        notebooks: what is known of kernels, by pid.

    Returns:
        The same table where the driver was read, or no kernel uses a GPU; else one with a row for each GPU and kernel,
        and the error as the first note.
    """
    if not table.error or table.gpus:
        return table
    gpus: dict[str, GpuRow] = {}
    rows: list[ProcessRow] = []
    for one in (report, *reports):
        for use in one.uses if one else ():
            if one is None or not use.taken:
                continue
            label = use.gpu[:_SHORT]
            gpus.setdefault(label, GpuRow(gpu=label, name="N/A", uuid=use.gpu, error=UNREAD))
            notebook = (notebooks or {}).get(one.pid)
            name = "this notebook" if one is report else (notebook and notebook.title) or "a kernel"
            who: Who = "this" if one is report else "mine"
            row = ProcessRow(
                gpu=label, pid=one.pid, kind="", who=who, owner=name, held=None, use=use, notebook=notebook
            )
            rows.append(row)
    if not gpus:
        return table
    order = {label: number for number, label in enumerate(gpus)}
    rows.sort(key=lambda row: (order[row.gpu], -(row.known or 0)))
    notes = (table.error, *table.notes)
    return replace(table, gpus=tuple(gpus.values()), processes=tuple(rows), error=None, absent=False, notes=notes)
