"""What parking takes beyond the copies themselves, and how fast those are: real frameworks, on a simulated GPU.

The copies beside it are those that a user would write: each variable's `numpy()`, each tensor's `cpu()`.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from scripts._scratch import scratch
from tfgpu_magic.ground.units import BINARY
from tfgpu_magic.parking.arrays import MovedArrays, Show
from tfgpu_magic.simgpu import Machine

KIB, MIB, GIB = (BINARY[unit] for unit in ("KiB", "MiB", "GiB"))
ARRAYS, SIZE = 1000, 4 * KIB
"""The small arrays whose parking is all but copies, and the bytes of each."""
LARGE = 8
"""Arrays of which a rate is measured."""
MOST = 100.0
"""Milliseconds that each way may take beyond the copies, and that another thread may wait meanwhile."""

_Kind = tuple[Callable[[int], Any], Callable[[Any], Any], Callable[[Any, Any], Any]]
"""What makes an array of so many bytes on a GPU, copies it to the host, and copies it back in place."""

_NAMES = {
    "out": "out: parked",
    "copies out": "  the copies alone",
    "back": "back: a cell can run",
    "copies back": "  the copies alone",
}
_RATES = ("rate out", "rate back", "rate of copies")
_FRAMEWORKS = {"tensorflow": "v.numpy()", "torch": "tensor.cpu()"}


def main() -> int:
    """Measure, print, and return 0 if the medians are within the promise."""
    parser = argparse.ArgumentParser("scripts/bench park", description=__doc__)
    parser.add_argument("-n", "--runs", type=int, default=15, help="how often each is measured (15)")
    parser.add_argument("--arrays", type=int, default=ARRAYS, help=f"how many small arrays there are ({ARRAYS:,})")
    parser.add_argument("--mib", type=int, default=128, help=f"MiB of each of {LARGE} large arrays (128)")
    parser.add_argument("--inside", choices=_FRAMEWORKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(_inside(options.inside, max(2, options.runs), options.arrays, options.mib * MIB)))
        return 0
    words = ["-n", str(options.runs), "--arrays", str(options.arrays), "--mib", str(options.mib)]
    there = [name for name in _FRAMEWORKS if importlib.util.find_spec(name)]
    found = {name: times for name in there if (times := _measured([*words, "--inside", name]))}
    print(f"{options.runs} rounds; {options.arrays:,} arrays of {SIZE // KIB} KiB, in milliseconds:\n")
    print(f"{'':<42}{'median':>9}{'min':>9}{'max':>9}")
    good = True
    for name, times in found.items():
        print(f"{name}:")
        for kind, label in _NAMES.items():
            values = [1000 * one for one in times[kind]]
            print(f"  {label:<40}{statistics.median(values):9.1f}{min(values):9.1f}{max(values):9.1f}")
    print(f"\n{LARGE} arrays of {options.mib} MiB, in GiB/s:\n\n{'':<26}{'out':>9}{'back':>9}   beside")
    for name, other in _FRAMEWORKS.items():
        rates = [f"{found[name][kind][0] / GIB:9.2f}" if name in found else f"{'N/A':>9}" for kind in _RATES]
        print(f"  {name:<24}{rates[0]}{rates[1]}   {other}{rates[2]}")
    print()
    for name, times in found.items():
        for way in ("out", "back"):
            more = 1000 * (statistics.median(times[way]) - statistics.median(times[f"copies {way}"]))
            good = _verdict(f"{name}, {way}: parking takes {more:.0f} ms beyond the copies", more) and good
        for size in ("small", "large"):
            wait = 1000 * statistics.median(times[size])
            good = _verdict(f"{name}, {size} arrays: another thread waits {wait:.0f} ms at the longest", wait) and good
    return 0 if good else 1


def _verdict(what: str, value: float) -> bool:
    good = value <= MOST
    print(f"{what}; at most {MOST:g} ms was promised: {'good' if good else 'NOT GOOD'}.")
    return good


def _measured(words: Sequence[str]) -> dict[str, list[float]]:
    """Measure in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "scripts._bench_park", *words]
    with Machine.create("1x16GiB") as machine, scratch() as folder:
        environment = {"TFGPU_MAGIC_DIR": f"{folder}/board", "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = machine.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _inside(framework: str, runs: int, arrays: int, size: int) -> dict[str, list[float]]:
    """Return seconds and rates by their names; nothing where the framework uses no GPU."""
    from IPython.core.interactiveshell import InteractiveShell

    from tfgpu_magic.parking.kernel.process import GatedProcess

    kind = _tensorflow() if framework == "tensorflow" else _torch()
    if kind is None:
        return {}
    mechanism = _Watched()
    process = GatedProcess(InteractiveShell.instance(), mechanism)
    times = _times(process, kind, arrays, 1 + runs)
    rates = _rates(process, kind, size, 1 + runs // 4)
    waits = {"small": mechanism.waits[1 : 1 + runs], "large": mechanism.waits[1 + runs :]}
    return {name: values[1:] for name, values in times.items()} | rates | waits


def _times(process: Any, kind: _Kind, arrays: int, runs: int) -> dict[str, list[float]]:
    make, out, back = kind
    small = [make(SIZE) for _ in range(arrays)]
    hosts: list[Any] = []
    found: dict[str, list[float]] = {name: [] for name in _NAMES}
    for _ in range(runs):
        found["out"].append(_seconds(lambda: _park(process)))
        found["back"].append(_seconds(process._come))
        hosts.clear()
        found["copies out"].append(_seconds(lambda: hosts.extend(map(out, small))))
        found["copies back"].append(_seconds(lambda: [*map(back, small, hosts)]))
    return found


def _rates(process: Any, kind: _Kind, size: int, runs: int) -> dict[str, list[float]]:
    """Return bytes a second; the medians."""
    make, out, _ = kind
    large = [make(size) for _ in range(LARGE)]
    ways = (lambda: _park(process), process._come, lambda: [*map(out, large)])
    rates = [[LARGE * size / _seconds(way) for way in ways] for _ in range(runs)]
    return {name: [statistics.median(values)] for name, values in zip(_RATES, zip(*rates, strict=True), strict=True)}


def _park(process: Any) -> None:
    if against := process.park():
        raise AssertionError(against)


def _seconds(do: Callable[[], object]) -> float:
    start = time.perf_counter()
    do()
    return time.perf_counter() - start


class _Watched(MovedArrays):
    """Takes arrays away while a thread has something to do each millisecond, as a kernel's that answers has."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def move_out(self, wanted: Callable[[], bool] = lambda: True, show: Show = bool) -> None:
        """Do so, and note the longest time in seconds between two turns of that thread."""
        over, turns = threading.Event(), [time.perf_counter()]

        def work() -> None:
            while not over.wait(0.001):
                turns.append(time.perf_counter())

        thread = threading.Thread(target=work)
        thread.start()
        super().move_out(wanted, show)
        over.set()
        thread.join()
        self.waits.append(max(later - sooner for sooner, later in itertools.pairwise(turns)))


def _tensorflow() -> _Kind:
    import tensorflow as tf

    import tfgpu_magic

    tfgpu_magic.apply("growth --release")
    return (
        lambda size: tf.Variable(tf.zeros(size // 4)),
        lambda variable: variable.numpy(),
        lambda variable, host: variable.assign(host),
    )


def _torch() -> _Kind | None:
    import torch

    if not torch.cuda.is_available():
        return None
    return (
        lambda size: torch.zeros(size // 4, device="cuda"),
        lambda tensor: tensor.cpu(),
        lambda tensor, host: tensor.copy_(host),
    )


if __name__ == "__main__":
    sys.exit(main())
