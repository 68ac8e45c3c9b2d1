"""What it costs a cell that it is tracked: the same cell again and again, with tracking and without, in pairs."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from scripts._scratch import scratch
from tfgpu_magic.simgpu import Machine

MOST = 0.2
"""Milliseconds that tracking may take of a cell."""

_KINDS = {
    "before": "before TensorFlow is imported",
    "imported": "TensorFlow imported, not used",
    "one": "TensorFlow on one GPU",
    "four": "TensorFlow on four GPUs",
}


def main() -> int:
    """Measure, print, and return 0 if the medians are within the promise."""
    parser = argparse.ArgumentParser("scripts/bench track", description=__doc__)
    parser.add_argument("-n", "--runs", type=int, default=40, help="rounds of four: without, with, with, without (40)")
    parser.add_argument("--cells", type=int, default=50, help="cells in each part of a round (50)")
    parser.add_argument("--inside", choices=_KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(_inside(options.inside, max(2, options.runs), options.cells)))
        return 0
    print(f"{options.runs} rounds of {4 * options.cells} cells; milliseconds of the processor's time a cell.\n")
    print(f"{'':<34}{'without':>10}{'with':>10}{'more, median':>15}{'quartiles':>20}")
    worst = 0.0
    for kind, name in _KINDS.items():
        rounds = _measured(kind, options)
        more = [with_ - without for without, with_ in rounds]
        low, middle, high = statistics.quantiles(more, n=4)
        without, with_ = (statistics.median(side) for side in zip(*rounds, strict=True))
        worst = max(worst, middle)
        print(f"  {name:<32}{without:10.3f}{with_:10.3f}{middle:15.3f}{low:12.3f} to {high:.3f}")
    good = worst <= MOST
    verdict = "good" if good else "NOT GOOD"
    print(f"\nTracking takes {worst:.3f} ms of a cell; at most {MOST:g} ms was promised: {verdict}.")
    return 0 if good else 1


def _measured(kind: str, options: argparse.Namespace) -> list[tuple[float, float]]:
    """Measure in a process of its own, and return the milliseconds of a cell without and with, by round."""
    command = [sys.executable, "-W", "ignore", "-m", "scripts._bench_track", "--inside", kind]
    command += ["-n", str(options.runs), "--cells", str(options.cells)]
    with Machine.create("4x16GiB" if kind == "four" else "1x16GiB") as machine, scratch() as folder:
        environment = {"TFGPU_MAGIC_DIR": f"{folder}/board", "TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
        done = machine.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [(without, with_) for without, with_ in json.loads(done.stdout.splitlines()[-1])]


def _inside(kind: str, runs: int, cells: int) -> list[tuple[float, float]]:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    if kind != "before":
        import tensorflow as tf

        for gpu in tf.config.list_logical_devices("GPU") if kind != "imported" else ():
            with tf.device(gpu.name):
                tf.zeros(1000)
    return [_round(shell, cells) for _ in range(1 + runs)][1:]


def _round(shell: Any, cells: int) -> tuple[float, float]:
    """Return the milliseconds of a cell without tracking and with it: without, with, with, without."""
    from tfgpu_magic.insight import tracker

    first = _cell(shell, cells)
    tracker.meter(shell).track(tracker.LEAST)
    with_ = _cell(shell, 2 * cells)
    tracker.meter(shell).track(None)
    return (first + _cell(shell, cells)) / 2, with_


def _cell(shell: Any, cells: int) -> float:
    start = time.thread_time()  # tracking waits for nothing, and what others do meanwhile does not count
    for _ in range(cells):
        shell.run_cell("x = 1", store_history=False)
    return (time.thread_time() - start) / cells * 1000


if __name__ == "__main__":
    sys.exit(main())
