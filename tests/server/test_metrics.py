"""What Prometheus is told: the GPUs' memory, by GPU and kind of owner, and nothing else."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.jupyter import Server, until
from tests.server.conftest import Serve
from tests.server.streaming import fresh, streaming
from tfgpu_magic.monitor.owners import by_user
from tfgpu_magic.monitor.rows import GpuRow, ProcessRow, Table
from tfgpu_magic.server import metrics
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from tfgpu_magic.monitor.owners import Who

GIB = 2**30
Figures = dict[tuple[str, str, str], float]


def parsed(text: str) -> Figures:
    """Every figure of ours, by name, GPU and owner."""
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


@pytest.mark.parametrize("watched", [False, True], ids=["read from the board", "with a page open"])
def test_memory_is_told_by_gpu_and_kind_of_owner(machine: Machine, serve: Serve, watched: bool) -> None:
    server = serve()
    foreign = machine.add_foreign("2GiB@1")
    with machine.add_neighbour("5GiB@0"), machine.add_neighbour("1GiB@1"), foreign:
        first = scraped(server)
        if watched:
            with streaming(server) as stream:
                stream.until(fresh, 5)
                figures = until(lambda: scraped(server), seconds=5)
        else:
            figures = until(lambda: scraped(server), seconds=5)

    assert first == {}  # nobody had looked: not zeros
    assert {name: size / GIB for name, size in figures.items()} == {
        ("total", "0", ""): 16, ("total", "1", ""): 16, ("used", "0", ""): 5, ("used", "1", ""): 3,
        ("held", "0", "own"): 5, ("held", "0", "other_users"): 0, ("held", "0", "unattributed"): 0,
        ("held", "1", "own"): 1, ("held", "1", "other_users"): 2, ("held", "1", "unattributed"): 0,
    }  # fmt: skip


def test_scraping_takes_milliseconds_and_wakes_a_collector_by_itself(server: Server) -> None:
    until(lambda: scraped(server), seconds=5)
    times = []
    for _ in range(30):
        begun = time.monotonic()
        assert scraped(server)
        times.append(time.monotonic() - begun)

    assert sorted(times)[15] < 0.05


def test_stale_figures_are_none(machine: Machine, server: Server) -> None:
    until(lambda: scraped(server), seconds=5)
    machine.hang("nvmlDeviceGetMemoryInfo", 10)
    try:
        until(lambda: not scraped(server), seconds=20)
    finally:
        machine.clear_faults()
    until(lambda: scraped(server), seconds=30)


def test_they_can_be_left_out(serve: Serve) -> None:
    server = serve("--TfGpuServer.metrics=False")
    with streaming(server) as stream:
        stream.until(fresh, 5)

        assert scraped(server) == {}


class Known(metrics.Source):
    """A source of given rows."""

    def __init__(self, table: Table | None) -> None:
        self._table = table

    def table(self) -> Table | None:
        return self._table

    def close(self) -> None:
        pass


def row(who: Who, held: int | None) -> ProcessRow:
    return ProcessRow(gpu="0", pid=7, kind="C", who=who, owner="x", held=held)


def told(*sources: Known) -> Figures:
    registry = CollectorRegistry(auto_describe=True)
    for source in sources:
        metrics.start(source, registry)
    text = generate_latest(registry).decode()
    for source in sources:
        metrics.stop(source, registry)
    assert generate_latest(registry) == b""
    return parsed(text)


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


def test_users_are_told_apart_without_a_name(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFGPU_SIMGPU", str(machine.path))  # which this process has open
    found = by_user([os.getpid(), 2**22 + 1])

    assert {pid: owner.who for pid, owner in found.items()} == {os.getpid(): "mine", 2**22 + 1: "gone"}
    assert {owner.text for owner in found.values()} == {""}
    assert {owner.who for owner in by_user([2**22 + 1, 2**40]).values()} == {"unknown"}
