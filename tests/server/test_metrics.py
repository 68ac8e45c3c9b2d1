"""What Prometheus is told: the GPUs' memory, by GPU and kind of owner, and nothing else."""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client import CollectorRegistry, generate_latest

from tests.figures import jax, pytorch
from tests.jupyter import Server, until
from tests.server.conftest import Serve
from tests.server.streaming import fresh, streaming
from tests.server.test_refused import NOT_THE_GPUS
from tests.sizes import GIB
from tests.slack import SLACK
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.report import Figure, GpuUse, Report
from tfgpu_magic.model.rows import GpuRow, Parked, ParkedState, ProcessRow, Table
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.board.snapshot_file import Look, Published
from tfgpu_magic.monitor.owners import attribution
from tfgpu_magic.monitor.table.fetch import Posted
from tfgpu_magic.server import metrics
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from tfgpu_magic.model.rows import Who

PAGE = (Path(__file__).parents[2] / "docs" / "administrators.md").read_text()
(PROMETHEUS,) = yaml.safe_load(PAGE.partition("```yaml\n")[2].partition("```")[0])["scrape_configs"]
"""How the page has Prometheus ask a server."""

Figures = dict[tuple[str, str, str], float]


def parsed(text: str) -> Figures:
    """Return every figure of ours, by name, GPU and owner."""
    found = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"tfgpu_magic_gpu_memory_(\w+)_bytes\{(.*)\} (\S+)", line):
            labels = dict(re.findall(r'(\w+)="(.*?)"', match[2]))
            assert labels.keys() <= {"gpu", "uuid", "owner"}
            found[match[1], labels["gpu"], labels.get("owner", "")] = float(match[3])
    return found


def scraped(server: Server) -> Figures:
    with server.open("metrics") as answer:
        return parsed(answer.read().decode())


def test_memory_is_told_by_gpu_and_kind_of_owner_read_from_the_board_and_with_a_page_open(
    machine: Machine, serve: Serve
) -> None:
    server = serve()
    foreign = machine.add_foreign("2GiB@1")
    path, asked = PROMETHEUS["metrics_path"].removeprefix("/"), PROMETHEUS["authorization"]
    with pytest.raises(HTTPError, match="403"):
        server.open(path, headers={})
    with machine.add_neighbour("5GiB@0"), machine.add_neighbour("1GiB@1"), foreign:
        with server.open(path, headers={"Authorization": f"{asked['type']} {server.token}"}) as answer:
            first = answer.read().decode()
        alone = until(lambda: scraped(server), seconds=5)
        with streaming(server) as stream:
            stream.until(fresh, 5)
            watched = until(lambda: scraped(server), seconds=5)

    assert parsed(first) == {}  # nobody had looked: not zeros
    assert "tfgpu_magic_up 0.0" in first
    assert {name: size / GIB for name, size in alone.items()} == {
        ("total", "0", ""): 16, ("total", "1", ""): 16, ("used", "0", ""): 5, ("used", "1", ""): 3,
        ("held", "0", "own"): 5, ("held", "0", "other_users"): 0, ("held", "0", "unattributed"): 0,
        ("held", "1", "own"): 1, ("held", "1", "other_users"): 2, ("held", "1", "unattributed"): 0,
    }  # fmt: skip
    assert watched == alone


def test_scraping_takes_milliseconds_and_wakes_a_collector_by_itself(server: Server) -> None:
    until(lambda: scraped(server), seconds=5)
    times = []
    for _ in range(30):
        begun = time.monotonic()
        assert scraped(server)
        times.append(time.monotonic() - begun)

    assert sorted(times)[15] < 0.05 * SLACK


def test_stale_figures_are_none(machine: Machine, server: Server) -> None:
    until(lambda: scraped(server), seconds=5)
    machine.hang("nvmlDeviceGetMemoryInfo", 10)
    try:
        until(lambda: not scraped(server), seconds=20)
    finally:
        machine.clear_faults()
    until(lambda: scraped(server), seconds=30)


@pytest.mark.parametrize("options", [["metrics=False"], ["metrics=False", "floor=5s"], ["metrics=no"]])
def test_they_can_be_left_out_and_a_setting_that_is_wrong_does_not_bring_them_back(
    serve: Serve, options: list[str]
) -> None:
    server = serve(*(f"--TfGpuServer.{option}" for option in options))
    with streaming(server) as stream:
        stream.until(fresh, 5)

        assert scraped(server) == {}


class Known(metrics.MetricsSource):
    """A source of given rows."""

    def __init__(self, table: Table | None, time: float = 0.0) -> None:
        self._table = replace(table or Table(error="Nobody has read them."), time=time)

    def read(self) -> Table:
        return self._table

    def close(self) -> None:
        pass


def row(who: Who, held: int | None) -> ProcessRow:
    return ProcessRow(gpu="0", pid=7, kind="C", who=who, owner="x", held=held)


def test_what_is_parked_is_told_by_state_and_counts_as_held_by_nobody() -> None:
    gpu = GpuRow(gpu="0", name="A100", uuid="GPU-1", used=GIB, total=9 * GIB)
    kept: tuple[tuple[ParkedState, int], ...] = (("parked", 2), ("parked", 3), ("waiting", 4))
    away = [
        replace(row("mine", 0), kind="", parked=Parked(state=state, size=size * GIB, since=1.0)) for state, size in kept
    ]
    table = Table(gpus=(gpu,), processes=(row("mine", GIB), *away))
    sizes = re.findall(
        r'tfgpu_magic_gpu_parked_bytes\{gpu="0",state="(\w+)",uuid="GPU-1"\} (\S+)', written(Known(table))
    )

    assert {state: float(size) / GIB for state, size in sizes} == {
        "parking": 0, "parked": 5, "waiting": 4, "restoring": 0, "failed": 0,
    }  # fmt: skip
    assert told(Known(table))["held", "0", "own"] == GIB
    assert "parked_bytes{" not in written(Known(replace(table, processes=(row("mine", GIB),))))


def told(*sources: Known) -> Figures:
    return parsed(written(*sources))


def written(*sources: Known) -> str:
    registry = CollectorRegistry(auto_describe=True)
    for source in sources:
        metrics.start(source, registry)
    text = generate_latest(registry).decode()
    for source in sources:
        metrics.stop(source, registry)
    assert generate_latest(registry) == b""
    return text


def test_two_servers_in_one_process_say_it_once_and_leave_nothing() -> None:
    gpu = GpuRow(gpu="0", name="T4", uuid="GPU-1", used=3, total=9)
    known = Known(Table(gpus=(gpu,), processes=(row("mine", 3),)))

    assert told(Known(None), known, known)["held", "0", "own"] == 3


def test_what_is_unknown_is_left_out() -> None:
    lost = GpuRow(gpu="0", name="T4", total=9, error="the GPU is lost")
    some = GpuRow(gpu="0", name="T4", used=3, total=9)
    rows = (row("mine", None), row("other", 2), row("gone", 1), row("unknown", 1))

    assert told(Known(Table(gpus=(lost,)))) == {("total", "0", ""): 9}
    assert told(Known(Table(gpus=(some,), processes=rows))) == {
        ("total", "0", ""): 9, ("used", "0", ""): 3,
        ("held", "0", "other_users"): 2, ("held", "0", "unattributed"): 2,
    }  # fmt: skip
    assert told(Known(None)) == {}


def used(table: Table) -> dict[tuple[str, str], float]:
    """Return the figures of use and of sensors, by name and owner."""
    found = re.findall(r"^tfgpu_magic_gpu_(\w+)\{(.*)\} (\S+)$", written(Known(table)), re.M)
    labels = [(name, dict(re.findall(r'(\w+)="(.*?)"', of)), value) for name, of, value in found]
    wanted = ("utilization_ratio", "temperature_celsius", "power_watts", "held_unused_bytes")
    return {(name, of.get("owner", "")): float(value) for name, of, value in labels if name in wanted}


def test_use_sensors_and_what_is_held_without_use_are_told_where_they_are_known() -> None:
    gpu = GpuRow(gpu="0", name="T4", used=9, total=9, utilisation=37, temperature=54, power=61_500)
    rows = (
        replace(row("mine", 3), utilisation=0, unused=1.0),
        replace(row("mine", 2), utilisation=40),
        replace(row("other", 1), utilisation=0),
        replace(row("unknown", 2), utilisation=None),
    )

    assert used(Table(gpus=(gpu,), processes=rows)) == {
        ("utilization_ratio", ""): 0.37, ("temperature_celsius", ""): 54, ("power_watts", ""): 61.5,
        ("held_unused_bytes", "own"): 3, ("held_unused_bytes", "other_users"): 0,
    }  # fmt: skip
    hidden = GpuRow(gpu="0", name="T4", used=9, total=9)

    assert used(Table(gpus=(hidden,), processes=(row("mine", 3), row("other", 1), row("unknown", 1)))) == {}
    assert used(Table(gpus=(GpuRow(gpu="0", name="T4", error="the GPU is lost"),))) == {}


def test_where_there_is_nothing_to_say_that_is_said() -> None:
    lost, fine = GpuRow(gpu="0", name="T4", error="the GPU is lost"), GpuRow(gpu="1", name="T4", used=1, total=9)
    nothing = written(Known(None))
    stale = written(Known(None, 1.7e9))
    well = written(Known(Table(gpus=(lost, fine)), 1.7e9))
    failed = written(Known(Table(error="the driver is not loaded"), 1.7e9))

    assert [bool(re.search(r"^tfgpu_magic_up 1.0$", text, re.M)) for text in (nothing, stale, well, failed)] == [
        False, False, True, False,
    ]  # fmt: skip
    assert "tfgpu_magic_up 0.0" in nothing
    assert "tfgpu_magic_last_reading_timestamp_seconds 1.7e+09" in stale
    assert "tfgpu_magic_last_reading_timestamp_seconds " not in re.sub("^#.*", "", nothing, flags=re.M)
    assert 'tfgpu_magic_gpu_error{gpu="0",uuid=""} 1.0' in well
    assert 'tfgpu_magic_gpu_error{gpu="1",uuid=""} 0.0' in well


def test_who_scrapes_rarely_finds_figures_from_the_third_time_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []

    class Never:
        def __init__(self, *, linger: float, every: float) -> None:
            assert every == metrics.READING_EVERY
            made.append(linger)

        def look(self) -> None:
            raise MonitorError("no board here")

        def close(self) -> None:
            pass

    now = 0.0
    monkeypatch.setattr(metrics, "Live", Never)
    monkeypatch.setattr("tfgpu_magic.server.metrics.time", SimpleNamespace(monotonic=lambda: now))
    source = metrics.MetricsSource()
    for now in (1000.0, 1015.0, 1315.0, 1615.0, 1e6):  # noqa: B007  # read by the clock above
        source.read()

    assert made == [metrics.LINGER, 750.0]


class Board:
    """A board with a process that is not on this machine, and a kernel that says that it uses the same GPU."""

    figures = pytorch(GIB, GIB)

    def __init__(self, **_: object) -> None: ...

    def look(self) -> Look:
        gpu = Gpu(index=0, uuid="GPU-1", used=4 * GIB, total=9 * GIB)
        stranger = Process(gpu="0", pid=2**22 + 1, kind="C", held=4 * GIB)
        snapshot = Snapshot(time=1.7e9, gpus=(gpu,), processes=(stranger,), listed_at=1.7e9)
        return Look(Published(1, snapshot.to_json()), 0.0, None)

    @property
    def report_files(self) -> Board:
        return self

    def posted(self) -> Posted:
        use = GpuUse(gpu="GPU-1", figures=self.figures)
        return Posted((Report(pid=os.getpid(), summary="", uses=(use,), used_since=1.6e9),))


@pytest.mark.parametrize("figures", [pytorch(0, GIB), jax(0, GIB, 3 * GIB)])
def test_own_is_what_kernels_say_where_the_driver_names_nobody_here(
    figures: tuple[Figure, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Board, "figures", figures)
    monkeypatch.setattr(metrics, "Live", Board)
    monkeypatch.setattr(metrics, "posted", Board.posted)
    held = told(Known(metrics.MetricsSource().read()))

    assert (held["held", "0", "own"], held["held", "0", "unattributed"]) == (GIB, 3 * GIB)


@pytest.mark.parametrize(("where", "what"), [(Posted, "known"), (attribution, "_read")])
def test_a_process_that_hangs_where_it_is_read_holds_up_no_server(
    where: object, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    monkeypatch.setattr(metrics, "Live", Board)
    monkeypatch.setattr(metrics, "posted", Board.posted)
    monkeypatch.setattr(attribution, "READ_TIMEOUT", 0.01)
    monkeypatch.setattr(where, what, lambda *_: never.wait(60))
    source = metrics.MetricsSource()
    begun = time.monotonic()
    tables = [source.read() for _ in range(3)]
    took = time.monotonic() - begun
    never.set()

    assert took < 30  # and not the 60 of the hang
    assert [set(told(Known(table))) for table in tables] == [{("total", "0", ""), ("used", "0", "")}] * 3


def test_a_directory_of_users_that_hangs_holds_up_no_server_either(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(metrics, "Live", Board)
    monkeypatch.setattr(metrics, "posted", Board.posted)
    monkeypatch.setattr(Board, "look", lambda _: never.wait(60))
    source = metrics.MetricsSource()
    begun = time.monotonic()
    errors = [source.read().error for _ in range(3)]
    source.close()
    took = time.monotonic() - begun
    never.set()

    assert took < 30
    assert errors == ["There are no fresh figures."] * 3


def test_who_asks_without_a_token_is_not_told_and_starts_nothing(machine: Machine, serve: Serve) -> None:
    server = serve("--ServerApp.authenticate_prometheus=False")

    with server.open("metrics", headers={}) as answer:
        assert "tfgpu_magic_" not in answer.read().decode()
    assert not (server.home / "board").exists()
    assert scraped(serve(config=NOT_THE_GPUS)) == {}
