"""What `%load_ext tfgpu_magic` and `%tf_gpu limit 2GiB` add to IPython's own start: whole processes, in pairs."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from scripts._scratch import scratch
from tfgpu_magic.simgpu import Machine

CELL = "%load_ext tfgpu_magic\n%tf_gpu limit 2GiB"
MOST = 100.0
"""Milliseconds that both lines may take together."""

_PARTS = """
import json, sys, time
shell, times = get_ipython(), [time.perf_counter()]
import tfgpu_magic; times.append(time.perf_counter())
shell.run_line_magic("load_ext", "tfgpu_magic"); times.append(time.perf_counter())
shell.run_line_magic("tf_gpu", "limit 2GiB"); times.append(time.perf_counter())
shell.run_line_magic("tf_gpu", "limit 1GiB"); times.append(time.perf_counter())
milliseconds = [1000 * (after - before) for before, after in zip(times, times[1:])]
print(json.dumps({"parts": milliseconds, "tensorflow": "tensorflow" in sys.modules}))
"""
_NAMES = ("import tfgpu_magic", "%load_ext tfgpu_magic", "%tf_gpu limit 2GiB", "a second %tf_gpu limit")


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of one process, from its start to its end: by the clock, and of processors with its children's."""

    wall: float
    cpu: float


def main() -> int:
    """Measure, print, and return 0 if the median is within the promise."""
    parser = argparse.ArgumentParser("scripts/bench load", description=__doc__)
    parser.add_argument("-n", "--runs", type=int, default=20, help="pairs of processes (20)")
    parser.add_argument("--gpus", default="4x8GiB", help="the simulated machine (4x8GiB)")
    runs = max(1, (options := parser.parse_args()).runs)
    with Machine.create(options.gpus) as machine, scratch() as profile:
        environment = machine.environ({**os.environ, "IPYTHONDIR": profile})
        parts = [_parts(environment) for _ in range(1 + runs)][1:]
        pairs = [(_cost("pass", environment), _cost(CELL, environment)) for _ in range(1 + runs)][1:]  # the first warms
    print(f"IPython's own start, and with `{CELL.replace(chr(10), '`, `')}`; {runs} pairs on {options.gpus}, in ms:\n")
    wall = _table("wall", [(plain.wall, ours.wall) for plain, ours in pairs])
    _table("user + system", [(plain.cpu, ours.cpu) for plain, ours in pairs])
    print(f"{'inside the process':<24}{'median':>8}{'min':>8}{'max':>8}")
    for name, values in zip(_NAMES, zip(*parts, strict=True), strict=True):
        _row(name, values)
    good = wall <= MOST
    verdict = "within" if good else "OVER"
    print(f"\nTensorFlow was not imported. The median of {wall:.0f} ms is {verdict} the {MOST:.0f} ms promised.")
    return 0 if good else 1


def _command(cell: str) -> list[str]:
    return [sys.executable, "-m", "IPython", "--no-banner", "--no-confirm-exit", "--colors=NoColor", "-c", cell]


def _cost(cell: str, environment: dict[str, str]) -> Cost:
    start = time.perf_counter()
    process = subprocess.Popen(_command(cell), env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"`{cell}` failed.")
    return Cost(1000 * wall, 1000 * (usage.ru_utime + usage.ru_stime))


def _parts(environment: dict[str, str]) -> list[float]:
    """Milliseconds of each part, measured inside one fresh process, which must not import TensorFlow."""
    done = subprocess.run(_command(_PARTS), env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    if found["tensorflow"]:
        raise SystemExit("TensorFlow was imported.")
    parts: list[float] = found["parts"]
    return parts


def _table(title: str, pairs: Sequence[tuple[float, float]]) -> float:
    """Print both sides and their differences pair by pair; return the differences' median."""
    plain, ours = zip(*pairs, strict=True)
    beyond = [b - a for a, b in pairs]
    print(f"{title:<24}{'median':>8}{'min':>8}{'max':>8}")
    _row("IPython alone", plain)
    _row("with both lines", ours)
    _row("beyond, pair by pair", beyond)
    print(f"  {'ratio, pair by pair':<22}{statistics.median(b / a for a, b in pairs):8.2f}\n")
    return statistics.median(beyond)


def _row(name: str, values: Sequence[float]) -> None:
    print(f"  {name:<22}{statistics.median(values):8.1f}{min(values):8.1f}{max(values):8.1f}")


if __name__ == "__main__":
    sys.exit(main())
