"""What parking and coming back cost beside the driver's own time: on a simulated driver that copies at once."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time

from tfgpu_magic.simgpu import Machine

MOST = 100.0
"""Milliseconds that we may add each way."""


def main() -> int:
    """Measure, print, and return 0 if the medians are within the promise."""
    parser = argparse.ArgumentParser("scripts/bench park", description=__doc__)
    parser.add_argument("-n", "--runs", type=int, default=20, help="how often it is parked (20)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(_inside(max(2, options.runs))))
        return 0
    times = _measured(options.runs)
    print(f"{options.runs} times; milliseconds beside the driver's own.\n\n{'':<16}{'median':>10}{'most':>10}")
    for name, values in times.items():
        print(f"  {name:<14}{statistics.median(values):10.1f}{max(values):10.1f}")
    worst = max(statistics.median(times[way]) for way in ("park", "come back"))
    verdict = "good" if worst <= MOST else "NOT GOOD"
    print(f"\nWe add {worst:.0f} ms to a way; at most {MOST:g} ms was promised: {verdict}.")
    return 0 if worst <= MOST else 1


def _measured(runs: int) -> dict[str, list[float]]:
    """Measure in a process of its own, a session whose TensorFlow has 4 GiB, and return the times by what was done."""
    command = [sys.executable, "-W", "ignore", "-m", "scripts._bench_park", "--inside", "-n", str(runs)]
    with Machine.create("1x16GiB") as machine, tempfile.TemporaryDirectory() as folder:
        environment = {"TFGPU_MAGIC_DIR": f"{folder}/board", "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = machine.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _inside(runs: int) -> dict[str, list[float]]:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    for line in ("%load_ext tfgpu_magic", "%config TfGpuMagics.parking = 'ask'", "%tf_gpu limit 4GiB"):
        shell.run_cell(line)
    shell.run_cell("import tensorflow as tf; kept = tf.zeros(2**20)")
    times: dict[str, list[float]] = {"park": [], "come back": []}
    for _ in range(1 + runs):
        for name, work in _WORK.items():
            begun = time.perf_counter()
            shell.run_cell(work)
            times[name].append(1000 * (time.perf_counter() - begun))
    return {name: values[1:] for name, values in times.items()}


_WORK = {"park": "%tf_gpu park", "come back": "pass"}

if __name__ == "__main__":
    sys.exit(main())
