"""What it costs a kernel that it reports on itself: a Python loop and a TensorFlow step loop, with and without."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from unittest import mock

from scripts._scratch import scratch
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from tfgpu_magic.notebook.reporter import Reporter

MOST = 1.0
"""Percent that a loop may be slower."""

_NAMES = {"python": "a tight Python loop", "tensorflow": "a TensorFlow step loop"}


def main() -> int:
    """Measure, print, and return 0 if the medians are within the promise."""
    parser = argparse.ArgumentParser("scripts/bench report", description=__doc__)
    parser.add_argument("-n", "--runs", type=int, default=15, help="rounds of four: without, with, with, without (15)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each loop runs (2)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(_inside(max(2, options.runs), options.seconds)))
        return 0
    command = [sys.executable, "-W", "ignore", "-m", "scripts._bench_report", "--inside"]
    command += ["-n", str(options.runs), "--seconds", str(options.seconds)]
    with Machine.create("4x16GiB") as machine, scratch() as folder:
        environment = {"TFGPU_MAGIC_DIR": f"{folder}/board", "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = machine.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"4 GPUs, all in use by TensorFlow; {options.runs} rounds of {4 * options.seconds:g} s a loop.\n")
    print(f"{'':<26}{'steps/s without':>18}{'with':>12}{'slower by, median':>20}{'quartiles':>18}")
    good = True
    for name, rounds in found["loops"].items():
        slower = [100 * (without / with_ - 1) for without, with_ in rounds]
        low, middle, high = statistics.quantiles(slower, n=4)
        without, with_ = (statistics.median(side) for side in zip(*rounds, strict=True))
        good = good and middle <= MOST
        print(f"  {_NAMES[name]:<24}{without:18.0f}{with_:12.0f}{middle:18.2f} %{low:10.2f} to {high:.2f}")
    print(f"\nA report takes {found['report']:.2f} ms, every {found['every']:.1f} s.")
    print(f"At most {MOST:g} % was promised: {'good' if good else 'NOT GOOD'}.")
    return 0 if good else 1


def _inside(runs: int, seconds: float) -> dict[str, object]:
    from IPython.core.interactiveshell import InteractiveShell

    from tfgpu_magic.frameworks import self_report
    from tfgpu_magic.notebook.reporter import Reporter

    shell = InteractiveShell.instance()
    steps = {"python": _count, "tensorflow": _train()}
    loops = {name: [_round(step, shell, seconds) for _ in range(1 + runs)][1:] for name, step in steps.items()}
    start = time.perf_counter()
    for _ in range(100):
        self_report.short_report()
    return {
        "loops": loops,
        "report": (time.perf_counter() - start) * 10,
        "every": _every(Reporter(shell, running=True)),
    }


def _count() -> None:
    """Work in Python alone, for about as long as a step of TensorFlow."""
    for number in range(10_000):
        number * number


def _train() -> Callable[[], None]:
    """Make a step that keeps every GPU at work."""
    import tensorflow as tf

    variables = []
    for gpu in tf.config.list_logical_devices("GPU"):
        with tf.device(gpu.name):
            variables.append(tf.Variable(tf.zeros([256, 256])))

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> None:
        for variable in variables:
            variable.assign_add(variable)

    step()
    return step  # type: ignore[no-any-return]


def _round(step: Callable[[], None], shell: object, seconds: float) -> tuple[float, float]:
    """Return steps a second without the reporter and with it: without, with, with, without."""
    from tfgpu_magic.notebook.reporter import Reporter

    first = _rate(step, seconds)
    reporter = Reporter(shell, running=True)
    reporter.start()
    with_ = _rate(step, 2 * seconds)
    reporter.stop()
    return (first + _rate(step, seconds)) / 2, with_


def _rate(step: Callable[[], None], seconds: float) -> float:
    start = now = time.perf_counter()
    count = 0
    while now < start + seconds:
        step()
        count += 1
        now = time.perf_counter()
    return count / (now - start)


def _every(reporter: Reporter) -> float:
    """Return the seconds between two reports, counted over ten."""
    from tfgpu_magic.machine.board.report_files import ReportFile

    with mock.patch.object(ReportFile, "post", autospec=True) as post:
        reporter.start()
        time.sleep(10)
        reporter.stop()
    return 10 / int(post.call_count)


if __name__ == "__main__":
    sys.exit(main())
