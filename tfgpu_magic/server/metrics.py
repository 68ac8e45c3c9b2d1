"""Exports the GPUs' memory for Prometheus on the server's own /metrics: by GPU and kind of owner, never by name."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.rows import ParkedState, Table, by_gpu
from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.owners.attribution import SILENT, Owners
from tfgpu_magic.monitor.table.fetch import PID_TRUSTED_FOR, posted
from tfgpu_magic.monitor.table.tabulate import Known, make
from tfgpu_magic.probe import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from tfgpu_magic.model.rows import GpuRow, ProcessRow, Who

LINGER = 150.0
"""Seconds at the least that a collector started here stays: long enough for a scrape every two minutes."""

LONGEST_REGULAR_GAP = 3600.0
"""Seconds between two scrapes beyond which they do not count as regular."""

READING_EVERY = 5.0
"""Seconds between two readings while Prometheus is the only viewer; its scrapes are rarer still."""

OWNERS_TIMEOUT = 0.25
"""Seconds to wait for the processes' owners; each takes a tenth of a millisecond."""

READ_TIMEOUT = 0.5
"""Seconds to wait for all that is read: a directory of users, or a home of NFS, may hang too."""

_STALE = "There are no fresh figures."

_OWNERS: dict[str, tuple[Who, ...]] = {
    "own": ("this", "mine"),
    "other_users": ("other",),
    "unattributed": ("gone", "unknown"),
}

_GAUGES: dict[str, tuple[str, ...]] = {
    "error": ("Whether a GPU's figures cannot be read.",),
    "memory_total_bytes": ("Memory of a GPU.",),
    "memory_used_bytes": ("Memory of a GPU that is in use by anyone.",),
    "memory_held_bytes": (
        "Memory of a GPU that processes hold: the server's user's own, other users', or not known whose.",
        "owner",
    ),
    "utilization_ratio": ("Time in which a GPU ran any kernel.",),
    "temperature_celsius": ("Temperature of a GPU.",),
    "power_watts": ("Power that a GPU draws.",),
    "held_unused_bytes": (
        "Memory of a GPU that processes hold which have not used it for a minute or longer.",
        "owner",
    ),
    "parked_bytes": (
        "Memory that the user's parked processes keep in host memory or on disk, and had of a GPU.",
        "state",
    ),
}
"""The gauges of each GPU, by their names' ends: what each tells, and its label beside the GPU's, if it has one."""


class MetricsSource:
    """The source of one server's figures: the board, whether a page is open or not. Thread-safe.

    Jupyter Server reads it on its event loop, and whatever is read can hang: after a while it is unknown, and as long
    as it hangs it is not read again.
    """

    def __init__(self) -> None:
        self._live = Live(linger=LINGER, every=READING_EVERY)
        self._owners = Owners(0, trust=PID_TRUSTED_FOR)
        self._linger = LINGER
        self._scraped_at = float("-inf")
        self._lock = threading.Lock()
        self._hanging: list[threading.Thread] = []

    def read(self) -> Table:
        """Read the board, or why it has no fresh figures; where there is no collector, this starts one."""
        return within(READ_TIMEOUT, self._read, self._hanging) or Table(error=_STALE)

    def _read(self) -> Table:
        with self._lock:
            self._stay_for(time.monotonic())
            try:
                look, found = self._live.look(), posted(self._live.report_files)
            except MonitorError as error:
                return Table(error=str(error))
        snapshot = look.snapshot
        if look.age is None or look.stale_since is not None:
            return Table(error=_STALE, time=snapshot.time)
        if snapshot.error:
            return Table(error=snapshot.error, time=snapshot.time)
        known = within(OWNERS_TIMEOUT, lambda: found.known(self._owners, snapshot, {}))
        if known is not None and all(owner.text != SILENT for owner in known.owners.values()):
            return make(snapshot, known)
        table = make(snapshot, Known(reports=found.reports, facts=found.facts))
        return replace(table, processes=tuple(replace(row, untold=True) for row in table.processes))

    def close(self) -> None:
        """Close the board."""
        if self._lock.acquire(timeout=READ_TIMEOUT):  # else a reading hangs
            self._live.close()
            self._lock.release()

    def _stay_for(self, now: float) -> None:
        """Make the collector stay until the next scrape, if scrapes are regular."""
        gap, self._scraped_at = now - self._scraped_at, now
        linger = max(LINGER, 2.5 * gap) if gap < LONGEST_REGULAR_GAP else LINGER
        if linger > self._linger:
            self._live.close()
            self._live, self._linger = Live(linger=linger, every=READING_EVERY), linger


class Collector:
    """The collector of Prometheus's client: the sources are of one user on one machine, so that any of them will do."""

    def __init__(self) -> None:
        self.sources: list[MetricsSource] = []

    def describe(self) -> Iterable[Metric]:
        """Name the figures."""
        return _families(Table(error=_STALE))

    def collect(self) -> Iterable[Metric]:
        """Return the figures; unknown ones are left out."""
        tables = [source.read() for source in tuple(self.sources)]
        return _families(next((table for table in tables if table.error is None), tables[0]))


_COLLECTOR = Collector()


def start(source: MetricsSource, registry: CollectorRegistry = REGISTRY) -> None:
    """Add a source's figures to /metrics; a second source in this process adds none, since they are the same."""
    if not _COLLECTOR.sources:
        registry.register(_COLLECTOR)
    _COLLECTOR.sources.append(source)


def stop(source: MetricsSource, registry: CollectorRegistry = REGISTRY) -> None:
    """Remove a source. With the last one, the figures leave /metrics."""
    _COLLECTOR.sources.remove(source)
    if not _COLLECTOR.sources:
        registry.unregister(_COLLECTOR)
    source.close()


def _families(table: Table) -> list[Metric]:
    up = GaugeMetricFamily(
        "tfgpu_magic_up", "Whether the GPUs' figures are there and fresh.", value=table.error is None
    )
    read = GaugeMetricFamily("tfgpu_magic_last_reading_timestamp_seconds", "When the GPUs were last read.")
    if table.time:
        read.add_metric([], table.time)
    families = {
        name: GaugeMetricFamily(f"tfgpu_magic_gpu_{name}", text, labels=["gpu", "uuid", *more])
        for name, (text, *more) in _GAUGES.items()
    }
    rows = by_gpu(table.processes)
    for gpu in table.gpus:
        for name, value, *more in _figures(gpu, rows.get(gpu.gpu, [])):
            if value is not None:
                families[name].add_metric([gpu.gpu, gpu.uuid or "", *more], value)
    return [up, read, *families.values()]


def _figures(gpu: GpuRow, rows: list[ProcessRow]) -> Iterator[tuple[str, float | None] | tuple[str, float | None, str]]:
    """Give each figure of a GPU: its gauge, its value, and its label, if it has one."""
    yield "error", gpu.error is not None
    yield "memory_total_bytes", gpu.total
    yield "memory_used_bytes", None if gpu.mig else gpu.used
    yield "utilization_ratio", None if gpu.utilisation is None else gpu.utilisation / 100
    yield "temperature_celsius", gpu.temperature
    yield "power_watts", None if gpu.power is None else gpu.power / 1000
    listed = not gpu.error and not gpu.mig and not any(row.untold for row in rows)
    for owner, who in _OWNERS.items():
        theirs = [row for row in rows if row.who in who]
        if listed and gpu.used is not None:
            yield "memory_held_bytes", _held(theirs), owner
        theirs = [row for row in theirs if row.kind not in ("", "G")]
        if listed and all(row.utilisation is not None for row in theirs):
            yield "held_unused_bytes", _held([row for row in theirs if row.unused is not None]), owner
    parked = [row.parked for row in rows if row.parked is not None]
    for state in get_args(ParkedState) if parked else ():
        yield "parked_bytes", sum(one.size for one in parked if one.state == state), state


def _held(rows: list[ProcessRow]) -> int | None:
    """Add up what processes hold; None unless all of it is known."""
    known = [row.known for row in rows if row.known is not None]
    return sum(known) if len(known) == len(rows) else None
