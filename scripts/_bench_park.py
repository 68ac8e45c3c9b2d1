"""What parking and coming back cost beside the driver's own time, which is none here."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import start_new_kernel

from scripts._scratch import scratch
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

MOST = {"park": 300.0, "come back": 100.0}
"""Milliseconds that we may add to each way: on the way out the driver worker starts."""

_AGAIN = 3
"""Parkings after the first until everything is as warm as it gets."""


def main() -> int:
    """Measure, print, and return 0 if the medians are within the promise."""
    parser = argparse.ArgumentParser("scripts/bench park", description=__doc__)
    parser.add_argument("-n", "--runs", type=int, default=20, help="how often it is parked (20)")
    options = parser.parse_args()
    found = _measured(max(3, options.runs))
    parks, backs = found["park"], found["come back"]
    print(f"A kernel with a Keras model in training is parked {options.runs} times by a driver that copies at once.\n")
    print(f"{'milliseconds':<16}{'first':>10}{'median':>10}{'most':>10}{'first half':>12}{'second half':>12}")
    for name, (first, *values) in (("park", parks), ("come back", backs)):
        warm, half = values[_AGAIN:] or values, len(values) // 2
        halves = statistics.median(values[:half] or values), statistics.median(values[half:])
        print(f"  {name:<14}{first:10.1f}{statistics.median(warm):10.1f}{max(warm):10.1f}", end="")
        print("".join(f"{one:12.1f}" for one in halves))
    same = "bit-equal every time" if found["same"] else "NOT THE SAME"
    print(f"\nWeights and optimizer: {same}. Resident memory: {_grown(found['resident'], 2**20)} MiB;", end=" ")
    print(f"descriptors: {_grown(found['descriptors'])}; threads: {_grown(found['threads'])}.")
    added = {name: statistics.median(found[name][1:]) for name in MOST}
    verdict = "good" if found["same"] and all(added[name] <= MOST[name] for name in MOST) else "NOT GOOD"
    said = ", ".join(f"{added[name]:.0f} ms to a {name}, at most {MOST[name]:g} was promised" for name in MOST)
    print(f"We add {said}: {verdict}.")
    return 0 if verdict == "good" else 1


def _grown(values: list[int], unit: int = 1) -> str:
    return f"{values[0] / unit:.0f} at first, {values[-1] / unit:.0f} in the end"


def _measured(runs: int) -> dict[str, Any]:
    """Park a kernel so often, have it come back, and return what is found: times from a cell's sending to its reply."""
    with Machine.create("1x16GiB") as machine, scratch() as folder:
        ours = {"TFGPU_MAGIC_DIR": f"{folder}/board", "IPYTHONDIR": f"{folder}/ipython", "TF_CPP_MIN_LOG_LEVEL": "2"}
        environment = machine.environ({**os.environ, **ours})
        manager, client = start_new_kernel(env=environment, extra_arguments=["--log-level=50"])
        try:
            return _parked(client, runs)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def _parked(client: BlockingKernelClient, runs: int) -> dict[str, Any]:
    def run(source: str, **values: str) -> dict[str, Any]:
        """Run a cell; return the values of expressions after it."""
        content = client.execute(source, user_expressions=values, reply=True, timeout=300)["content"]
        assert content["status"] == "ok", content
        return {name: eval(one["data"]["text/plain"]) for name, one in content["user_expressions"].items()}

    run("%load_ext tfgpu_magic\n%config TfGpuMagics.parking = 'ask'\n%tf_gpu limit 4GiB")
    run(_TRAIN)
    found: dict[str, Any] = {"park": [], "come back": []}
    sizes: dict[str, list[int]] = {name: [] for name in _SIZES}
    for _ in range(runs):
        for name, source in _WAYS.items():
            begun = time.perf_counter()
            run(source)
            found[name].append(1000 * (time.perf_counter() - begun))
        seen = run("", same="digest() == before", **_SIZES)
        found["same"] = found.get("same", True) and seen["same"]
        for name in _SIZES:
            sizes[name].append(seen[name])
    warm = min(_AGAIN, runs - 2)
    return found | {name: values[warm:] for name, values in sizes.items()}


_WAYS = {"park": "%tf_gpu park", "come back": "pass"}

_TRAIN = """
import os, psutil
from tests.simgpu.checkpoint_on_machine import digest, train
before = train()
"""

_SIZES = {
    "resident": "psutil.Process().memory_info().rss",
    "descriptors": "len(os.listdir('/proc/self/fd'))",
    "threads": "psutil.Process().num_threads()",
}


if __name__ == "__main__":
    sys.exit(main())
