"""A day of two machines as data: who held what when, what was scraped of it, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import GaugeMetricFamily

from tests.lab.prometheus import Samples
from tests.sizes import GIB
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.lab.counters import UsageTotals
from tfgpu_magic.lab.exporter import Exporter, LimitFacts, MachineSeen, make_metrics
from tfgpu_magic.machine.board.unused import IdleTracker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

MIDNIGHT = 1_790_035_200
"""The day's beginning, in seconds since the epoch."""
HOUR = 3600
DAY = 24 * HOUR
LISTED_EVERY, SCRAPED_EVERY = 10, 60
NAMES = {1001: "ann", 1002: "ben", 1003: "cy", 1004: "dee"}
UID = "01234567-89ab-cdef-0123-456789abcdef"
NO_LIMITS = LimitFacts()
POD = {"namespace": "hub", "node": "node1", "pod": "jupyter-cy"}


@dataclass(frozen=True)
class Hold:
    """What a process holds, in hours of the day.

    Attributes:
        gpu: the GPU.
        uid: the process's user.
        size: bytes.
        begin: when it comes.
        end: when it goes.
        used: when its kernels run.
        cgroup: where it is.
    """

    gpu: str
    uid: int
    size: int
    begin: float
    end: float
    used: tuple[tuple[float, float], ...] = ()
    cgroup: str | None = None

    def on_gpu(self, hour: float) -> bool:
        return self.begin <= hour < self.end

    @property
    def byte_hours(self) -> float:
        return self.size * (self.end - self.begin)

    @property
    def unused_byte_hours(self) -> float:
        """What of that was without use, all pauses being longer than a minute."""
        return self.byte_hours - self.size * sum(end - begin for begin, end in self.used)


@dataclass(frozen=True)
class Lab:
    """A machine on that day.

    Attributes:
        name: what it is called.
        gpus: its GPUs.
        holds: what its processes hold.
        not_scraped: hours in which Prometheus did not reach it.
        hangs: hours in which its collector gave no sign.
        collector_restarts: when the collector was restarted, and went on from its file.
        exporter_restarts: when the exporter was restarted.
        boots: when the machine came back from a restart, with nothing.
        lost: hours in which its first GPU could not be read.
        limits: what the driver held users to.
    """

    name: str
    gpus: tuple[Gpu, ...]
    holds: tuple[Hold, ...]
    not_scraped: tuple[tuple[float, float], ...] = ()
    hangs: tuple[tuple[float, float], ...] = ()
    collector_restarts: tuple[float, ...] = ()
    exporter_restarts: tuple[float, ...] = ()
    boots: tuple[float, ...] = ()
    lost: tuple[float, float] = (25, 25)
    limits: LimitFacts = NO_LIMITS

    def reading(self, second: int) -> Snapshot:
        """Return what the driver lists at a time."""
        hour, since = second / HOUR, (second - LISTED_EVERY) / HOUR
        rows = tuple(
            Process(
                one.gpu, number, "C", one.size, 50 if any(a < hour and since < b for a, b in one.used) else 0,
                one.uid, number, None, one.cgroup,
            )
            for number, one in enumerate(self.holds, 100)
            if one.on_gpu(hour)
        )  # fmt: skip
        gpus = tuple(
            gpu._replace(
                used=sum(row.held or 0 for row in rows if row.gpu == gpu.label),
                sensors={
                    "utilisation": max((row.utilisation or 0 for row in rows if row.gpu == gpu.label), default=0),
                    "temperature": 30 + 10 * gpu.index,
                    "power": 100,
                },
            )
            for gpu in self.gpus
        )
        if self.lost[0] <= hour < self.lost[1]:
            gpus = (gpus[0]._replace(used=None, error="the GPU is lost", listed=False), *gpus[1:])
        at = float(MIDNIGHT + second)
        return Snapshot(time=at, driver="615.71", gpus=gpus, processes=rows, listed_at=at)

    def scrapes(self) -> Iterator[tuple[float, list[Metric]]]:
        """Give what the exporter tells at each scrape, with its time, from what the collector counts meanwhile."""
        board = None

        tracker, hours, exporter = IdleTracker(), UsageTotals(), Exporter()
        for second in range(0, DAY + 1, LISTED_EVERY):
            hour = second / HOUR
            if not _within(hour, self.hangs):
                if hour in self.boots:
                    tracker, hours, exporter = IdleTracker(), UsageTotals(), Exporter()
                if hour in self.collector_restarts and board:
                    tracker, hours = IdleTracker(board), UsageTotals.from_json(hours.to_json(), board)
                board = tracker.step(self.reading(second))
                hours.step(board)
            if hour in self.exporter_restarts:
                exporter = Exporter()
            if second % SCRAPED_EVERY == 0 and not _within(hour, self.not_scraped) and second // SCRAPED_EVERY % 7:
                at = MIDNIGHT + second + 0.25
                fresh = board if board is not None and at - board.time < LISTED_EVERY else None
                totals = exporter._from_zero(hours, at) if fresh else {}
                seen = MachineSeen(self.name, fresh, totals, NAMES, self.limits)
                yield at, make_metrics(seen, at)


def _within(hour: float, ranges: Iterable[tuple[float, float]]) -> bool:
    return any(begin <= hour < end for begin, end in ranges)


def gpu(index: int, uuid: str, size: int) -> Gpu:
    return Gpu(index=index, uuid=uuid, total=size * GIB)


LABS = (
    Lab(
        "lab1",
        (gpu(0, "GPU-10", 80), gpu(1, "GPU-11", 80)),
        (
            Hold("0", 1001, 40 * GIB, 0.5, 24.5, used=((0.5, 4), (20, 23))),  # over a night and a gap of the scrapes
            Hold("0", 1002, 38 * GIB, 9, 18, used=((9, 18),)),
            Hold("1", 1002, 6 * GIB, 11.5, 12),
            Hold("1", 1004, 4 * GIB, 2, 2 + 1 / 3, used=((2, 2 + 1 / 3),)),  # the first minute is a twentieth
            Hold("1", 1001, 10 * GIB, 14, 20, used=((14, 15), (19, 20))),
        ),
        not_scraped=((10, 10.5), (13, 13.1)),
        hangs=((6, 6.01),),
        collector_restarts=(6.5, 15.25),
        exporter_restarts=(10.25, 17),
        limits=LimitFacts({("GPU-10", 1002): (None, 40 * GIB)}, 0),
    ),
    Lab(
        "lab2",
        (gpu(0, "GPU-20", 16),),
        (
            Hold("0", 1003, 12 * GIB, 1, 3, used=((1, 3),), cgroup=f"pod:{UID}/{'c' * 64}"),
            Hold("0", 1003, 8 * GIB, 8, 22, used=((8, 9), (12, 15), (20, 22)), cgroup=f"pod:{UID}/{'d' * 64}"),
        ),
        hangs=((4, 5),),
        boots=(5,),
        exporter_restarts=(5,),
        lost=(23, 25),
        limits=LimitFacts({}, 3),
    ),
)


def day() -> Samples:
    """Return all that was scraped on that day, with what kube-state-metrics tells of a pod."""
    pod = GaugeMetricFamily("kube_pod_info", "", labels=[*POD, "uid"])
    pod.add_metric([*POD.values(), UID], 1)
    owner = GaugeMetricFamily(
        "kube_pod_annotations", "", labels=["namespace", "pod", "annotation_hub_jupyter_org_username"]
    )
    owner.add_metric([POD["namespace"], POD["pod"], "cy"], 1)
    alert = GaugeMetricFamily("ALERTS", "", labels=["alertname", "alertstate", "severity", "hostname", "username"])
    alert.add_metric(["TfGpuHeldUnused", "firing", "info", "lab1", "ann"], 1)
    samples = Samples()
    for lab in LABS:
        for at, found in lab.scrapes():
            samples.add(found, at)
    for second in range(0, DAY + 1, SCRAPED_EVERY):  # as Prometheus itself writes an alert that fires
        samples.add([pod, owner, alert], MIDNIGHT + second)
    return samples
