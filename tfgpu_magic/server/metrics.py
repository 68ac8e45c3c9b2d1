"""Exports on the server's own /metrics what only its user's kernels know; `lab.exporter` has the machine's figures."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.snapshot import Gpu
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.report_files import ReportFiles
from tfgpu_magic.monitor.live import last
from tfgpu_magic.monitor.table.fetch import Posted, posted
from tfgpu_magic.probe import within

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Thread

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from tfgpu_magic.model.report import Report

READ_TIMEOUT = 0.5
"""Seconds to wait for what is read: a directory of users, or a home of NFS, may hang. Then nothing is told."""


class KernelsFound(NamedTuple):
    """What is read at a scrape.

    Attributes:
        posted: what the kernels say of themselves.
        gpus: those of the board, if a collector has written one: they tell the GPUs' numbers.
    """

    posted: Posted
    gpus: tuple[Gpu, ...] = ()


class KernelMetrics(Collector):
    """The collector of Prometheus's client. Jupyter Server calls it on its event loop, and whatever is read can hang.

    Attributes:
        servers: how many are in this process; all are of one user, so that one of them tells it.
    """

    def __init__(self) -> None:
        self.servers = 0
        self._hanging: list[Thread] = []

    def describe(self) -> list[Metric]:
        """Return nothing: else the client would collect for it when the server starts."""
        return []

    def collect(self) -> list[Metric]:
        """Return the metrics; what is not known is left out."""
        found = within(READ_TIMEOUT, _read, self._hanging)
        return [] if found is None else families(found)


_METRICS = KernelMetrics()


def start(registry: CollectorRegistry = REGISTRY) -> None:
    """Add the kernels' figures to /metrics for a server; a second one in this process adds none."""
    if not _METRICS.servers:
        registry.register(_METRICS)
    _METRICS.servers += 1


def stop(registry: CollectorRegistry = REGISTRY) -> None:
    """Take a server away. With the last one, the figures leave /metrics."""
    _METRICS.servers -= 1
    if not _METRICS.servers:
        registry.unregister(_METRICS)


def families(found: KernelsFound) -> list[Metric]:
    """Return the metrics.

    Args:
        found: what was read.
    """
    reports = found.posted.reports
    notebooks = GaugeMetricFamily("tfgpu_magic_notebooks", "Own notebooks that use tfgpu_magic.", labels=["state"])
    states = Counter({True: "busy", False: "idle", None: "unknown"}[one.busy] for one in reports if one.kernel)
    for state in ("busy", "idle", "unknown"):
        notebooks.add_metric([state], states[state])
    in_use = GaugeMetricFamily(
        "tfgpu_magic_gpu_in_use_bytes",
        "Memory of a GPU that the objects of own notebooks and programs take, by their frameworks.",
        labels=["gpu", "uuid"],
    )
    labels = {gpu.uuid: gpu.label for gpu in found.gpus if gpu.uuid}
    for (gpu, uuid), size in _in_use(reports, labels).items():
        in_use.add_metric([gpu, uuid], size)
    return [notebooks, in_use]


def _in_use(reports: Sequence[Report], labels: dict[str, str]) -> Counter[tuple[str, str]]:
    """Return what kernels use, by the GPU's number and UUID, of which one may not be known."""
    uuids = {label: uuid for uuid, label in labels.items()}
    found: Counter[tuple[str, str]] = Counter()
    for use in (use for one in reports for use in one.uses if use.used is not None):
        by_uuid = use.gpu.startswith(("GPU-", "MIG-"))  # a kernel that has not looked at the machine's GPUs
        gpu = (labels.get(use.gpu, ""), use.gpu) if by_uuid else (use.gpu, uuids.get(use.gpu, ""))
        found[gpu] += use.used or 0
    return found


def _read() -> KernelsFound | None:
    """Read what is posted; no collector is started for it."""
    with contextlib.suppress(MonitorError), BoardDirectory() as place:
        board = last()
        return KernelsFound(posted(ReportFiles(place)), board.gpus if board else ())
    return None
