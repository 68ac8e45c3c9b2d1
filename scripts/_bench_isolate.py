"""What an isolated call costs: TensorFlow's first op, a trivial call, 1 GiB there and back; beside its peers."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from scripts._scratch import scratch
from tfgpu_magic.simgpu import Machine

WARM, TRIVIAL, SPEED = 0.250, 0.030, 1.5
"""What is promised: seconds to the first op, seconds of a trivial call, GB/s there and back."""
TIMES_SPAWN, TIMES_POOL = 20.0, 5.0
"""How many times faster than `multiprocessing`'s spawn, and than `ProcessPoolExecutor`."""

GIB = 2**30
_SPAWN = multiprocessing.get_context("spawn")
_NAMES = {
    "first op": "to TensorFlow's first op, s",
    "first op, limit": "the same with `limit 2GiB`, s",
    "trivial": "a trivial call, s",
    "1 GiB": "1 GiB of float32 there and back, s",
}


def main() -> int:
    """Measure, print, and return 0 if the medians are within the promises."""
    parser = argparse.ArgumentParser("scripts/bench isolate", description=__doc__)
    parser.add_argument("-n", "--runs", type=int, default=7, help="rounds; the peers take seconds in each (7)")
    parser.add_argument("--ours", action="store_true", help="leave out how others do it, which takes most of the time")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(_inside(max(2, options.runs), ours=options.ours)))
        return 0
    with Machine.create("1x8GiB") as machine, scratch() as folder:
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2", "TFGPU_MAGIC_DIR": f"{folder}/board"}
        command = [sys.executable, "-W", "ignore", "-m", "scripts._bench_isolate", "-n", str(options.runs)]
        done = machine.run(
            [*command, "--inside", *(["--ours"] if options.ours else [])],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    found: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return _tell(found, options.runs)


def _tell(found: dict[str, dict[str, list[float]]], runs: int) -> int:
    print(f"{runs} rounds, each with all of them one after the other; medians, and the quickest and slowest.\n")
    for what, times in found.items():
        print(_NAMES[what])
        ours = times["isolated"]
        for who, seconds in times.items():
            ratio = statistics.median(b / a for a, b in zip(ours, seconds, strict=True))
            line = f"  {who:<32}{statistics.median(seconds):9.3f}{min(seconds):9.3f}{max(seconds):9.3f}"
            print(line + (f"{ratio:9.1f} x" if who != "isolated" else ""))
    median = {
        what: {who: statistics.median(seconds) for who, seconds in times.items()} for what, times in found.items()
    }
    speed = 2 * GIB / median["1 GiB"]["isolated"] / 1e9
    kept = [
        (f"first op {1000 * median['first op']['isolated']:.0f} ms", median["first op"]["isolated"] <= WARM),
        (f"a trivial call {1000 * median['trivial']['isolated']:.1f} ms", median["trivial"]["isolated"] <= TRIVIAL),
        (f"{speed:.2f} GB/s", speed >= SPEED),
    ]
    for what, who, least in (("first op", "spawn", TIMES_SPAWN), ("1 GiB", "ProcessPoolExecutor", TIMES_POOL)):
        if who in found[what]:
            ratio = statistics.median(b / a for a, b in zip(found[what]["isolated"], found[what][who], strict=True))
            kept.append((f"{ratio:.1f} times faster than {who}", ratio >= least))
    print("\n" + "\n".join(f"{'kept' if good else 'NOT KEPT'}: {what}" for what, good in kept))
    return 0 if all(good for _, good in kept) else 1


def _inside(runs: int, *, ours: bool) -> dict[str, dict[str, list[float]]]:
    from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER

    process = FORK_SERVER.start()
    process.read_status()  # which waits until the fork server is warm
    process.close()
    with ProcessPoolExecutor(1, mp_context=_SPAWN) as pool:  # one that is warm, as ours is
        cases = _cases(pool)
        if ours:
            cases = {what: {"isolated": ways["isolated"]} for what, ways in cases.items()}
        found: dict[str, dict[str, list[float]]] = {what: {who: [] for who in ways} for what, ways in cases.items()}
        for number in range(1 + runs):
            for what, ways in cases.items():
                for who, call in ways.items():
                    begin = time.perf_counter()
                    call()
                    if number:  # the first round warms
                        found[what][who].append(time.perf_counter() - begin)
    return found


def _cases(pool: ProcessPoolExecutor) -> dict[str, dict[str, Callable[[], Any]]]:
    """What is measured, and who does it how."""
    import numpy as np

    from tfgpu_magic import isolated

    array, echo = np.ones(GIB // 4, np.float32), isolated(_echo)
    return {
        "first op": {"isolated": isolated(_first_op), "spawn": lambda: _spawned(_first_op)},
        "first op, limit": {"isolated": isolated(policy="limit 2GiB")(_first_op)},
        "trivial": {"isolated": isolated(_nothing), "spawn": lambda: _spawned(_nothing)},
        "1 GiB": {
            "isolated": lambda: echo(array),
            "ProcessPoolExecutor": lambda: pool.submit(_echo, array).result(),
        },
    }


def _spawned(function: Callable[[], Any]) -> Any:
    with _SPAWN.Pool(1) as pool:
        return pool.apply(function)


def _first_op() -> float:
    import tensorflow as tf

    return float(tf.constant(1.0) + 1.0)


def _nothing() -> None:
    pass


def _echo(array: Any) -> Any:
    return array


if __name__ == "__main__":
    sys.exit(main())
