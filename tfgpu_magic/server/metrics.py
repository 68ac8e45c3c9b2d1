"""The GPUs' memory for Prometheus, on the server's own /metrics: by GPU and kind of owner, never by name."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.owners import by_user
from tfgpu_magic.monitor.rows import NOT_TOLD, Table, make

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from tfgpu_magic.monitor.owners import Who
    from tfgpu_magic.monitor.rows import ProcessRow
    from tfgpu_magic.server.feed import Feed

LINGER = 150.0
"""Seconds that a collector stays which is started here: it is there for whoever scrapes every two minutes."""

EVERY = 5.0
"""Seconds between two readings while nobody but Prometheus looks, who comes more rarely still."""

_OWNERS: dict[str, tuple[Who, ...]] = {
    "own": ("this", "mine"),
    "other_users": ("other",),
    "unattributed": ("gone", "unknown"),
}


class Source:
    """Where the figures of one server are from: its feed while that looks, else the board. For any thread.

    Args:
        feed: what the server's pages see.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._live = Live(linger=LINGER, every=EVERY)
        self._lock = threading.Lock()

    def table(self) -> Table | None:
        """Return the rows as they are now; None while nobody has read the GPUs, or the figures are stale."""
        if (table := self._feed.table) is not None:
            return table
        with self._lock:
            try:
                look = self._live.look()
            except MonitorError:
                return None
        if look.age is None or look.stale_since is not None:
            return None
        return make(look.snapshot, by_user({process.pid for process in look.snapshot.processes}))

    def close(self) -> None:
        """Let go of the board."""
        with self._lock:
            self._live.close()


class Collector:
    """What Prometheus's client asks: the sources are of one user on one machine, so that any one of them will do."""

    def __init__(self) -> None:
        self.sources: list[Source] = []

    def describe(self) -> Iterable[Metric]:
        """Name the figures."""
        return _families(Table())

    def collect(self) -> Iterable[Metric]:
        """Return the figures; what is unknown is left out."""
        tables = (source.table() for source in tuple(self.sources))
        return _families(next((table for table in tables if table is not None), Table()))


_COLLECTOR = Collector()


def start(source: Source, registry: CollectorRegistry = REGISTRY) -> None:
    """Have /metrics show a source's figures; a second source in this process shows the same ones, once."""
    if not _COLLECTOR.sources:
        registry.register(_COLLECTOR)
    _COLLECTOR.sources.append(source)


def stop(source: Source, registry: CollectorRegistry = REGISTRY) -> None:
    """Take a source away. With the last one /metrics is as it was before."""
    _COLLECTOR.sources.remove(source)
    if not _COLLECTOR.sources:
        registry.unregister(_COLLECTOR)
    source.close()


def _families(table: Table) -> list[Metric]:
    prefix, labels = "tfgpu_magic_gpu_memory", ["gpu", "uuid"]
    total = GaugeMetricFamily(f"{prefix}_total_bytes", "Memory of a GPU.", labels=labels)
    used = GaugeMetricFamily(f"{prefix}_used_bytes", "Memory of a GPU that is in use by anyone.", labels=labels)
    held = GaugeMetricFamily(
        f"{prefix}_held_bytes",
        "Memory of a GPU that processes hold: the server's user's own, other users', or not known whose.",
        labels=[*labels, "owner"],
    )
    for gpu in table.gpus:
        at = [gpu.gpu, gpu.uuid or ""]
        if gpu.total is not None:
            total.add_metric(at, gpu.total)
        if gpu.used is not None and not gpu.mig:
            used.add_metric(at, gpu.used)
        rows = [row for row in table.processes if row.gpu == gpu.gpu]
        if gpu.error or gpu.mig or gpu.used is None or any(row.owner == NOT_TOLD for row in rows):
            continue
        for owner, who in _OWNERS.items():
            if (size := _held([row for row in rows if row.who in who])) is not None:
                held.add_metric([*at, owner], size)
    return [total, used, held]


def _held(rows: list[ProcessRow]) -> int | None:
    """Add up what processes hold; None unless all of it is known."""
    known = [row.known for row in rows if row.known is not None]
    return sum(known) if len(known) == len(rows) else None
