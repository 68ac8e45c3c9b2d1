"""What `%tf_gpu tensors` takes where a notebook has very many arrays: real TensorFlow, on a simulated GPU."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from tfgpu_magic.simgpu import Machine

ARRAYS = 50_000
MOST = 1.0
"""Seconds that naming so many arrays may take."""

_NAMES = {
    "few": "a model in training",
    "many": "and {:,} tensors in a list",
    "deep": "or as many in dictionaries of objects",
    "nameless": "and one that no name leads to",
}


def main() -> int:
    """Measure, print, and return 0 if the medians are within the promise."""
    parser = argparse.ArgumentParser("scripts/bench tensors", description=__doc__)
    parser.add_argument("-n", "--runs", type=int, default=9, help="how often each is measured (9)")
    parser.add_argument("--arrays", type=int, default=ARRAYS, help=f"how many arrays there are ({ARRAYS:,})")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(_inside(max(1, options.runs), options.arrays)))
        return 0
    words = ["--inside", "-n", str(options.runs), "--arrays", str(options.arrays)]
    command = [sys.executable, "-W", "ignore", "-m", "scripts._bench_tensors", *words]
    with Machine.create("1x16GiB") as machine:
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2"}
        done = machine.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    times: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    print(f"{options.runs} rounds, in seconds:\n")
    print(f"{'':<42}{'median':>9}{'min':>9}{'max':>9}")
    for name, values in times.items():
        shown = _NAMES[name].format(options.arrays)
        print(f"  {shown:<40}{statistics.median(values):9.3f}{min(values):9.3f}{max(values):9.3f}")
    slowest = max(map(statistics.median, times.values()))
    good = slowest <= MOST
    print(f"\nNaming so many takes {slowest:.2f} s; at most {MOST:g} s was promised: {'good' if good else 'NOT GOOD'}.")
    return 0 if good else 1


def _inside(runs: int, arrays: int) -> dict[str, list[float]]:
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras

    main: Any = sys.modules["__main__"]
    layers = [keras.Input((64,)), *(keras.layers.Dense(64) for _ in range(8))]
    main.model = keras.Sequential(layers)
    main.model.compile("adam", "mse")
    main.model.fit(np.zeros((64, 64)), np.zeros((64, 64)), verbose=0)
    times = {"few": _times(runs)}
    main.many = [tf.zeros([16]) for _ in range(arrays)]
    times["many"] = _times(runs)
    del main.many
    main.deep = [_Box({"x": tf.zeros([16])}) for _ in range(arrays)]
    times["deep"] = _times(runs)
    gc.disable()  # or the garbage were soon gone
    cycle: list[Any] = [tf.zeros([1024, 1024])]
    cycle.append(cycle)
    del cycle
    times["nameless"] = _times(runs)
    return times


class _Box:
    def __init__(self, inside: dict[str, object]) -> None:
        self.inside = inside


def _times(runs: int) -> list[float]:
    from tfgpu_magic.insight.objects.tensors import tensors

    found = []
    for _ in range(runs):
        start = time.perf_counter()
        taken = tensors()
        found.append(time.perf_counter() - start)
        assert taken.holdings
    return found


if __name__ == "__main__":
    sys.exit(main())
