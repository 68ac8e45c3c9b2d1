"""The readers of all sources as one, for the processes that may hang: that of `look`, and the `collector`.

A reading that left out the expensive lists of processes is completed from the reading before it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tfgpu_magic.model.said import in_a_row
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.driver.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Readers:
    """A reader of every source. Not thread-safe.

    Args:
        folders: where else to look for the drivers' libraries, if the system does not find them.
    """

    def __init__(self, folders: Iterable[str] = ()) -> None:
        folders = tuple(folders)
        self._readers = [source.open(folders) for source in SOURCES]

    def read(self, *, processes: bool = True, graphics: bool = True) -> Snapshot:
        """Read every source, as `sources.SourceReader.read`."""
        return joined([reader.read(processes=processes, graphics=graphics) for reader in self._readers])

    def close(self) -> None:
        """Close all drivers; a later `read` opens them again."""
        for reader in self._readers:
            reader.close()


def joined(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Join the sources' snapshots: their GPUs one after the other, numbered on.

    A source without a driver or GPU here is left out where another has one; one that fails beside it is a note.

    Args:
        snapshots: each source's, in their order; at least one.
    """
    here = [one for one in snapshots if not one.absent]
    reading = [one for one in here if one.error is None]
    if not reading:
        failed = here or snapshots
        return failed[0] if len(failed) == 1 else failed[0]._replace(error=in_a_row(one.error or "" for one in failed))
    if len(here) == 1:
        return here[0]
    gpus: list[Gpu] = []
    rows: list[Process] = []
    for one in reading:
        first = max((gpu.index + 1 for gpu in gpus), default=0)
        numbered = {gpu.label: gpu._replace(index=first + gpu.index) for gpu in one.gpus}
        gpus += numbered.values()
        rows += [row._replace(gpu=numbered[row.gpu].label) for row in one.processes]
    listed = [one.listed_at for one in reading if one.listed_at is not None]
    return Snapshot(
        time=max(one.time for one in reading),
        driver=", ".join(one.driver for one in reading if one.driver) or None,
        gpus=tuple(gpus),
        processes=tuple(rows),
        notes=(*(note for one in reading for note in one.notes), *(one.error for one in here if one.error)),
        listed_at=min(listed) if len(listed) == len(reading) else None,
    )


def completed(fresh: Snapshot, before: Snapshot | None, *, processes: bool, graphics: bool) -> Snapshot:
    """Return a snapshot with what its reading left out, taken from the one before.

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
    complete = _with_sensors if processes else _as_listed
    gpus = tuple(complete(gpu, known[gpu.label, gpu.uuid]) if gpu.label in answering else gpu for gpu in fresh.gpus)
    if processes:
        drawing = {(row.gpu, row.pid): row for row in before.processes if "G" in row.kind and row.gpu in answering}
        return fresh._replace(gpus=gpus, processes=_with_graphics(fresh, drawing) if drawing else fresh.processes)
    old = tuple([row for row in before.processes if row.gpu in answering])
    notes = tuple(dict.fromkeys((*before.notes, *fresh.notes)))
    return fresh._replace(gpus=gpus, processes=old, notes=notes, listed_at=before.listed_at)


def _with_sensors(gpu: Gpu, before: Gpu) -> Gpu:
    """Copy to a GPU what its sensors told, which are read with the graphics processes."""
    if before.temperature is None and before.power is None:
        return gpu
    return gpu._replace(temperature=before.temperature, power=before.power)


def _as_listed(gpu: Gpu, before: Gpu) -> Gpu:
    """Copy to a GPU what its lists and sensors told: whether there are lists, and a use that is their sum."""
    error = before.error if before.refused else None
    used = before.used if before.unified and gpu.used is None else gpu.used
    unified = gpu.unified or before.unified
    return gpu._replace(
        listed=before.listed,
        used_then=before.used_then,
        refused=before.refused,
        used=used,
        unified=unified,
        error=error,
        temperature=before.temperature,
        power=before.power,
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


def main() -> None:
    """Print one snapshot as one line of JSON, and exit at once: the operating system cleans everything up."""
    print(Readers().read().to_json(), flush=True)
    os._exit(0)
