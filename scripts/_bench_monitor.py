"""What it costs to see all GPUs: a collector's tick and a reader's look beside bare pynvml and nvitop, in one run.

Times are the processor's, so that whatever else runs on the machine does not count. With `--users` the machine is
compared, row for row, with one of 8 GPUs and 256 processes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import cast

from scripts._scratch import scratch
from tfgpu_magic.simgpu import Machine

FIRST_USER = 100_000
MOST_OF_BARE, LEAST_OF_NVITOP, MOST_OF_A_LOOK = 3.0, 20.0, 0.3
"""A tick in bare loops; nvitop's snapshot in ticks; milliseconds, for up to 256 processes."""
SMALL, MOST_PER_ROW = (8, 256), 2.0
"""GPUs and processes of a machine that others are compared with; how much more a row of theirs may cost."""

_NAMES = {
    "bare": "bare pynvml loop",
    "tick": "a collector's tick",
    "memory": "  without lists",
    "proc": "  with all of /proc",
    "nvitop": "nvitop.take_snapshots",
    "look": "a reader's look",
    "again": "  nothing new",
    "table": "a page's state",
}


def main() -> int:
    """Measure, print, and return 0 if the medians are within the promises."""
    parser = argparse.ArgumentParser("scripts/bench monitor", description=__doc__)
    parser.add_argument(
        "-n", "--runs", type=int, default=30, help="rounds, in each of which everything is measured (30)"
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[32, 256], help="how many hold memory (32 256)")
    parser.add_argument("--gpus", type=int, default=8, help="how many there are (8)")
    parser.add_argument("--users", type=int, default=0, help="as root: how many users the processes are of (one's own)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(_inside(options.runs)))
        return 0
    runs = max(1, options.runs)
    good = []
    small = _measured(*SMALL, options.users, runs) if options.users else None
    for processes in options.processes:
        measured = _measured(options.gpus, processes, options.users, runs)
        print(f"{options.gpus} GPUs, {processes} processes of {options.users or 'no other'} users; {runs} rounds:\n")
        good.append(_judged(measured, processes))
        good += [_no_more(measured, processes, small)] if small else []
    return 0 if all(good) else 1


def _measured(gpus: int, processes: int, users: int, runs: int) -> dict[str, list[float]]:
    command = [sys.executable, "-W", "ignore", "-m", "scripts._bench_monitor", "--inside", "-n", str(runs)]
    with Machine.create(f"{gpus}x16GiB", context=64 * 2**20) as machine, scratch() as folder:
        holders = [
            machine.add_neighbour(f"100MiB@{number % gpus}", user=FIRST_USER + number % users if users else None)
            for number in range(processes)
        ]
        for holder in holders[:gpus]:  # one on each GPU computes
            machine.use(holder.pid, 50)
        environment = {"TFGPU_MAGIC_DIR": f"{folder}/board"}
        done = machine.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    times: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return times


def _judged(times: dict[str, list[float]], processes: int) -> bool:
    """Print what was measured, and tell whether it is within the promises."""
    print(f"{'in ms':<24}{'median':>9}{'min':>9}{'max':>9}")
    for name, values in times.items():
        if name in _NAMES:
            print(f"  {_NAMES[name]:<22}{statistics.median(values):9.3f}{min(values):9.3f}{max(values):9.3f}")
    bare = statistics.median(tick / loop for tick, loop in zip(times["tick"], times["bare"], strict=True))
    nvitop = statistics.median(theirs / tick for theirs, tick in zip(times["nvitop"], times["tick"], strict=True))
    look, most = statistics.median(times["look"]), MOST_OF_A_LOOK * max(1.0, processes / SMALL[1])
    print(f"\nA tick takes {1000 * statistics.median(times['tick']) / processes:.1f} us for each process.")
    return all([
        _verdict("A tick is", bare, "bare loops; at most", MOST_OF_BARE, bare <= MOST_OF_BARE),
        _verdict("nvitop takes", nvitop, "ticks; at least", LEAST_OF_NVITOP, nvitop >= LEAST_OF_NVITOP),
        _verdict("A look takes", look, "ms; at most", most, look <= most),
    ])  # fmt: skip


def _no_more(large: dict[str, list[float]], processes: int, small: dict[str, list[float]]) -> bool:
    """Tell whether a row costs no more than twice what it does on a small machine."""
    print()
    good = []
    for name in ("beyond", "proc", "look", "table", "bytes"):
        one, other = statistics.median(large[name]) / processes, statistics.median(small[name]) / SMALL[1]
        what = {"beyond": "a tick beyond the bare loop", "bytes": "a message's bytes"}.get(name, _NAMES.get(name, ""))
        good.append(one <= MOST_PER_ROW * other)
        _verdict(f"A row of {what.strip()} is", one / other, "of a small machine's; at most", MOST_PER_ROW, good[-1])
    return all(good)


def _verdict(what: str, value: float, bound: str, promised: float, good: bool) -> bool:
    print(f"{what} {value:.2f} {bound} {promised:g} promised: {'good' if good else 'NOT GOOD'}.")
    return good


def _inside(runs: int) -> dict[str, list[float]]:
    """Measure on the machine, round by round, so that whatever else goes on here meets all alike."""
    import nvitop  # type: ignore[import-untyped]
    import pynvml

    from tfgpu_magic.ground.snapshot import Snapshot
    from tfgpu_magic.machine import collector
    from tfgpu_magic.machine.board.directory import BoardDirectory
    from tfgpu_magic.machine.board.history import HistoryWriter
    from tfgpu_magic.machine.board.snapshot_file import SnapshotReader, SnapshotWriter
    from tfgpu_magic.machine.board.unused import AFTER, IdleTracker
    from tfgpu_magic.machine.driver.nvml import NvmlReader
    from tfgpu_magic.machine.owners.attribution import Owners
    from tfgpu_magic.machine.owners.holders import TRUSTED_FOR, Holders, read_users_holder
    from tfgpu_magic.tell import page_json
    from tfgpu_magic.tell.fetch import BoardContents
    from tfgpu_magic.tell.tabulate import make_table

    assert os.environ["TFGPU_MAGIC_DIR"]
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    def bare() -> None:  # what a tick reads
        for handle in handles:
            pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            pynvml.nvmlDeviceGetUtilizationRates(handle)
            pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle)
            pynvml.nvmlDeviceGetProcessUtilization(handle, 0)

    place = BoardDirectory()
    source, writer, reader = NvmlReader(), SnapshotWriter(place), SnapshotReader(place)
    past = HistoryWriter(place)
    last = collector.read(source, None, "graphics")
    ledger, holders, owners, clock = IdleTracker(), Holders(read_users_holder), Owners(0, trust=math.inf), 0.0
    last = holders.complete(last, clock)
    ledger.step(last._replace(listed_at=time.time() - 2 * AFTER))  # all that hold are counted

    def tick(kind: str = "lists") -> None:
        nonlocal last
        last = collector.read(source, last, kind)
        if kind != "memory":
            last = ledger.step(holders.complete(last, clock))
        writer.publish(last)
        past.add(last)

    def look() -> Snapshot:
        return reader.read().snapshot

    def proc() -> None:
        nonlocal clock
        clock += 2 * TRUSTED_FOR
        tick()

    def table() -> None:
        snapshot = look()
        known = BoardContents().facts(owners, snapshot, {})
        page_json.tick(
            1, 0, page_json.patch({}, cast("dict[str, object]", page_json.state(make_table(snapshot, known))))
        )

    # What is measured comes second, after itself or what makes it news: whoever comes first after a while pays for
    # cold caches and for the simulated driver's own housekeeping.
    steps: dict[str, tuple[list[Callable[[], object]], Callable[[], object]]] = {
        "bare": ([bare], bare),
        "memory": ([partial(tick, "memory")], partial(tick, "memory")),
        "tick": ([tick], tick),
        "nvitop": ([nvitop.take_snapshots], nvitop.take_snapshots),
        "look": ([look, tick], look),
        "again": ([look], look),
        "proc": ([proc], proc),
        "table": ([table, tick, look], table),
    }
    found = _timed(steps, runs)
    beyond = [tick - loop for tick, loop in zip(found["tick"], found["bare"], strict=True)]
    return found | {"beyond": beyond, "bytes": [float(len(reader.read().snapshot.to_json()))]}


def _timed(
    steps: dict[str, tuple[list[Callable[[], object]], Callable[[], object]]], runs: int
) -> dict[str, list[float]]:
    """Return how many milliseconds of the processor each step takes, round by round; others come before it."""
    times: dict[str, list[float]] = {name: [] for name in _NAMES}
    for _ in range(1 + runs):  # the first warms
        for name, (before, step) in steps.items():
            for prepare in before:
                prepare()
            start = time.process_time()
            step()
            times[name].append(1000 * (time.process_time() - start))
    return {name: values[1:] for name, values in times.items()}


if __name__ == "__main__":
    sys.exit(main())
