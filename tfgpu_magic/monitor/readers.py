"""The readers of all sources as one, for the processes that may hang: that of `look`, and the `collector`."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfgpu_magic.monitor.source import Reader


class Readers:
    """A reader of every source. Not thread-safe.

    Args:
        folders: where else to look for the drivers' libraries, if the system does not find them.
    """

    def __init__(self, folders: Iterable[str] = ()) -> None:
        folders = tuple(folders)
        self._readers: list[Reader] = []
        self._missing: list[str] = []
        for source in SOURCES:
            try:
                self._readers.append(source.open(folders))
            except ImportError:
                self._missing.append(source.not_installed)

    def read(self, *, processes: bool = True, graphics: bool = True) -> Snapshot:
        """Read every source, as `source.Reader.read`."""
        read = [reader.read(processes=processes, graphics=graphics) for reader in self._readers]
        return joined([*read, *(Snapshot(time=time.time(), error=why) for why in self._missing)])

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
        return failed[0] if len(failed) == 1 else replace(failed[0], error=" ".join(one.error or "" for one in failed))
    if len(here) == 1:
        return here[0]
    gpus: list[Gpu] = []
    rows: list[Process] = []
    for one in reading:
        first = max((gpu.index + 1 for gpu in gpus), default=0)
        numbered = {gpu.label: replace(gpu, index=first + gpu.index) for gpu in one.gpus}
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


def main() -> None:
    """Print one snapshot as one line of JSON, and exit at once: the operating system cleans everything up."""
    print(Readers().read().to_json(), flush=True)
    os._exit(0)
