"""What many open pages and live tables cost: NVML's calls, bytes, the server's other answers, in one run."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_client.manager import KernelManager

from scripts._scratch import scratch
from tests.jupyter import Server, execute, serving
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.neighbours import Holder

GPUS, PROCESSES, MOVING = 8, 32, 2
MOST_CALLS, MOST_BEYOND, MOST_BYTES = 1.25, 10.0, 1024.0
"""NVML's calls with all pages, in those with one; milliseconds of the slowest 1% beyond an idle server's; bytes."""


@dataclass(slots=True)
class Kind:
    """What was measured with so many pages open: milliseconds, calls of NVML in so many seconds, ticks' bytes."""

    times: list[float] = field(default_factory=list)
    calls: int = 0
    seconds: float = 0.0
    ticks: int = 0
    size: int = 0

    @property
    def slowest(self) -> float:
        return statistics.quantiles(self.times, n=100)[98]


def main() -> int:
    """Measure, print, and return 0 if the promises are kept."""
    parser = argparse.ArgumentParser("scripts/bench stream", description=__doc__)
    parser.add_argument("-n", "--runs", type=int, default=3, help="rounds, in each of which all is measured (3)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each part of a round takes (10)")
    parser.add_argument("--pages", type=int, default=100, help="how many are open at most (100)")
    parser.add_argument("--kernels", type=int, default=16, help="how many have a live table at most (16)")
    parser.add_argument("--inside", nargs=2, metavar=("URL", "TOKEN"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        url, token = options.inside
        asyncio.run(_be_pages(url, token, options.pages))
        return 0
    kinds = {pages: Kind() for pages in (0, 1, options.pages)}
    with _shared() as (machine, holders), scratch() as home:
        enabled = ["--ServerApp.jpserver_extensions=tfgpu_magic.server=True"]
        environment = {"TFGPU_MAGIC_DIR": f"{home}/board", "PYTHONPATH": ""}
        with serving(machine, Path(home), options=enabled, environment=environment) as server:
            for _ in range(max(1, options.runs)):
                for pages, kind in kinds.items():
                    with _open(server, pages, kind):
                        _measure(machine, server, holders, options.seconds, kind)
    tables = _tables(max(2, options.kernels), options.runs * options.seconds)
    good = [_report(kinds, options.pages, options.runs, options.seconds), _report_tables(tables)]
    return 0 if all(good) else 1


def _report(kinds: dict[int, Kind], pages: int, runs: int, seconds: float) -> bool:
    print(f"{GPUS} GPUs, {PROCESSES} processes, {MOVING} of which move; {runs} rounds of 3 times {seconds:g} s:\n")
    print(f"{'pages':>7}{'median':>9}{'99%':>9}{'max':>9}   ms for /api/status{'NVML calls/s':>15}{'bytes a tick':>15}")
    for number, kind in kinds.items():
        answers = f"{statistics.median(kind.times):9.2f}{kind.slowest:9.2f}{max(kind.times):9.2f}"
        bytes_a_tick = f"{kind.size / kind.ticks:15.0f}" if kind.ticks else ""
        print(f"{number:7}{answers}{'':21}{kind.calls / kind.seconds:15.1f}{bytes_a_tick}")
    one, many = kinds[1], kinds[pages]
    calls = (many.calls / many.seconds) / (one.calls / one.seconds)
    beyond = many.slowest - kinds[0].slowest
    size = many.size / max(1, many.ticks)
    print()
    return all([
        _verdict(f"With {pages} pages NVML is called", calls, "times as often as with one; at most", MOST_CALLS),
        _verdict("The slowest 1% of answers take", beyond, "ms beyond the idle server's; at most", MOST_BEYOND),
        _verdict("A tick is", size, "bytes; at most", MOST_BYTES),
    ])  # fmt: skip


def _report_tables(kinds: dict[int, Kind]) -> bool:
    one, *_, many = rates = [kind.calls / kind.seconds for kind in kinds.values()]
    print(f"\n{'kernels':>7}{'NVML calls/s':>15}   with a live table in each, and no page")
    for number, rate in zip(kinds, rates, strict=True):
        print(f"{number:7}{rate:15.1f}")
    print()
    return _verdict(
        f"With {max(kinds)} kernels NVML is called", many / one, "times as often as with one; at most", MOST_CALLS
    )


def _verdict(what: str, value: float, bound: str, promised: float) -> bool:
    good = value <= promised
    print(f"{what} {value:.2f} {bound} {promised:g} promised: {'good' if good else 'NOT GOOD'}.")
    return good


def _measure(machine: Machine, server: Server, holders: Sequence[Holder], seconds: float, kind: Kind) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    before, begun = sum(machine.calls().values()), time.monotonic()
    due = 0.0
    while (past := time.monotonic() - begun) < seconds:
        if past > due:
            _move(holders)
            due += 1
        start = time.perf_counter()
        connection.request("GET", "/api/status", headers={"Authorization": f"token {server.token}"})
        connection.getresponse().read()
        kind.times.append(1000 * (time.perf_counter() - start))
        time.sleep(0.004)
    kind.calls += sum(machine.calls().values()) - before
    kind.seconds += time.monotonic() - begun
    connection.close()


def _move(holders: Sequence[Holder]) -> None:
    for holder in random.sample(holders, MOVING):
        holder.resize(f"{random.randrange(100, 200)}MiB")


@contextmanager
def _shared() -> Iterator[tuple[Machine, Sequence[Holder]]]:
    """Make a machine with many processes. What reads one for some lingers, so that others need one of their own."""
    with Machine.create(f"{GPUS}x16GiB", context=64 * 2**20) as machine:
        yield machine, [machine.add_neighbour(f"100MiB@{number % GPUS}") for number in range(PROCESSES)]


def _tables(most: int, seconds: float) -> dict[int, Kind]:
    """Count NVML's calls beside more and more kernels with a live table."""
    kinds = {number: Kind() for number in sorted({1, min(4, most), most})}
    with _shared() as (machine, holders), scratch() as folder, ExitStack() as kernels:
        environment = machine.environ({**os.environ, "TFGPU_MAGIC_DIR": f"{folder}/board"})
        there = 0
        for number, kind in kinds.items():
            for manager in [_start(kernels, environment) for _ in range(number - there)]:
                client = manager.blocking_client()
                client.start_channels()
                client.wait_for_ready(timeout=120)
                said = execute(client, "%load_ext tfgpu_magic\n%tf_gpu top")
                if "Held" not in said:
                    raise AssertionError(said)
                client.stop_channels()
            there = number
            time.sleep(2)  # the first looks of those who are new
            before, begun = sum(machine.calls().values()), time.monotonic()
            while time.monotonic() < begun + seconds:
                _move(holders)
                time.sleep(1)
            kind.calls, kind.seconds = sum(machine.calls().values()) - before, time.monotonic() - begun
    return kinds


def _start(kernels: ExitStack, environment: dict[str, str]) -> KernelManager:
    manager = KernelManager()
    manager.start_kernel(env=environment, stderr=subprocess.DEVNULL)
    kernels.callback(manager.shutdown_kernel, now=True)
    return manager


@contextmanager
def _open(server: Server, pages: int, kind: Kind) -> Iterator[None]:
    """Have pages open, in a process of their own."""
    if not pages:
        yield
        return
    url = f"ws://{server.base}tfgpu-magic/stream"
    command = [sys.executable, "-m", "scripts._bench_stream", "--pages", str(pages), "--inside", url, server.token]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise AssertionError("it was asked for")
        process.stdout.readline()  # all have been sent all
        yield
        counted = json.loads(process.communicate("\n")[0])
    kind.ticks += counted["ticks"]
    kind.size += counted["size"]


async def _be_pages(url: str, token: str, pages: int) -> None:
    from tornado.httpclient import HTTPRequest
    from tornado.websocket import websocket_connect

    request = HTTPRequest(url, headers={"Authorization": f"token {token}"})
    connections = [await websocket_connect(request) for _ in range(pages)]
    for connection in connections:
        await connection.read_message()
    counted = {"ticks": 0, "size": 0}

    async def read(number: int) -> None:
        while text := await connections[number].read_message():
            counted["ticks"] += 1
            counted["size"] += len(text)

    reading = [asyncio.ensure_future(read(number)) for number in range(pages)]
    print(flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(json.dumps(counted))
    for connection in connections:
        connection.close()
    await asyncio.wait(reading, timeout=5)


if __name__ == "__main__":
    sys.exit(main())
