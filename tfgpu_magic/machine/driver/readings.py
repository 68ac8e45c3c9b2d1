"""Completes a reading that left out the expensive lists of processes from the reading before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot


def complete(fresh: Snapshot, before: Snapshot | None, *, processes: bool, graphics: bool) -> Snapshot:
    """Return a snapshot completed from the one before: its reading left out the lists of processes.

    Args:
        fresh: the reading now.
        before: what this returned for the reading before; None if there was none.
        processes: whether `fresh` has lists of processes.
        graphics: whether it has those of graphics processes too.

    Returns:
        `fresh` with the rows, and the facts about the lists, of those of its GPUs that were there before and answer
        now; a GPU that fails has no rows. So a row may outlive its process until its list is read again.
    """
    if before is None or fresh.error or (processes and graphics):
        return fresh
    known = {(gpu.label, gpu.uuid): gpu for gpu in before.gpus}
    answering = {gpu.label for gpu in fresh.gpus if (gpu.label, gpu.uuid) in known and not gpu.error}
    complete = _with_sensors if processes else _with_lists
    gpus = tuple(complete(gpu, known[gpu.label, gpu.uuid]) if gpu.label in answering else gpu for gpu in fresh.gpus)
    if processes:
        drawing = {(row.gpu, row.pid): row for row in before.processes if "G" in row.kind and row.gpu in answering}
        return fresh._replace(gpus=gpus, processes=_with_graphics(fresh, drawing) if drawing else fresh.processes)
    old = tuple([row for row in before.processes if row.gpu in answering])
    notes = tuple(dict.fromkeys((*before.notes, *fresh.notes)))
    return fresh._replace(gpus=gpus, processes=old, notes=notes, listed_at=before.listed_at)


def _with_sensors(gpu: Gpu, before: Gpu) -> Gpu:
    """Copy to a GPU what those of its sensors told that are read with the graphics processes."""
    return gpu._replace(sensors={**before.sensors, **gpu.sensors})


def _with_lists(gpu: Gpu, before: Gpu) -> Gpu:
    """Copy to a GPU what its lists and sensors told: whether there are lists, and a use that is their sum."""
    return _with_sensors(gpu, before)._replace(
        listed=before.listed,
        used_then=before.used_then,
        refused=before.refused,
        used=before.used if before.unified and gpu.used is None else gpu.used,
        unified=gpu.unified or before.unified,
        error=before.error if before.refused else None,
    )


def _with_graphics(fresh: Snapshot, drawing: Mapping[tuple[str, int], Process]) -> tuple[Process, ...]:
    """Add the processes that only draw, and mark those that draw and compute."""
    rows = [
        row._replace(kind="C+G") if row.kind == "C" and (row.gpu, row.pid) in drawing else row
        for row in fresh.processes
    ]
    here = {(row.gpu, row.pid) for row in rows}
    rows += [row for place, row in drawing.items() if row.kind == "G" and place not in here]
    order = {gpu.label: number for number, gpu in enumerate(fresh.gpus)}
    return tuple(sorted(rows, key=lambda row: order[row.gpu]))
