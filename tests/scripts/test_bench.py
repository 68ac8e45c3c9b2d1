"""`scripts/bench` measures what it says and judges it; times are for a person on a quiet machine, and for no test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import _bench_park, _bench_report, _bench_stream, _bench_tensors, _bench_track
from scripts._bench_browser import Task, until_enough

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]


def bench(what: str, *options: str) -> str:
    """Return what the benchmark prints; it fails only by a verdict."""
    done = subprocess.run(
        [sys.executable, "-m", f"scripts._bench_{what}", *options], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == (1 if re.search("NOT GOOD|NOT KEPT|OVER", done.stdout) else 0), done.stdout
    return done.stdout


def verdicts(text: str) -> int:
    """Return how many of the figures are judged."""
    return text.count("promised: ")


def test_load_is_measured_in_pairs_and_by_its_parts() -> None:
    said = bench("load", "-n", "2")

    rows = re.findall(r"^  (\S.*?)  +(-?\d+\.\d) +(-?\d+\.\d) +(-?\d+\.\d)$", said, re.MULTILINE)
    assert [name for name, *_ in rows] == [
        *("IPython alone", "with both lines", "beyond, pair by pair") * 2,
        *("import tfgpu_magic", "%load_ext tfgpu_magic", "%tf_gpu limit 2GiB", "a second %tf_gpu limit"),
    ]
    assert "TensorFlow was not imported." in said


def test_monitor_is_measured_beside_bare_pynvml_and_nvitop() -> None:
    said = bench("monitor", "-n", "21", "--processes", "8")

    rows = re.findall(r"^  ( *\S.*?)  +(\d+\.\d+) +(\d+\.\d+) +(\d+\.\d+)$", said, re.MULTILINE)
    assert [name.strip() for name, *_ in rows] == [
        *("bare pynvml loop", "a collector's tick", "without lists", "with all of /proc", "nvitop.take_snapshots"),
        *("a reader's look", "nothing new", "a page's state"),
    ]
    assert verdicts(said) == 3


def test_pages_are_measured_beside_an_idle_server_and_tables_beside_one() -> None:
    said = bench("stream", "-n", "1", "--seconds", "2", "--pages", "5", "--kernels", "2")

    rows = re.findall(r"^ +(\d+) +\d+\.\d+ +\d+\.\d+ +\d+\.\d+ ", said, re.MULTILINE)
    kernels = re.findall(r"^ +(\d+) +\d+\.\d+$", said, re.MULTILINE)
    assert rows == ["0", "1", "5"]
    assert kernels == ["1", "2"]
    assert verdicts(said) == 4
    (size,) = map(float, re.findall(r"^A tick is ([\d.]+) ", said, re.MULTILINE))
    assert 0 < size <= _bench_stream.MOST_BYTES


def test_a_page_is_measured_tick_by_tick() -> None:
    said = bench("browser", "-n", "2")

    rows = re.findall(r"^  ( *\S.*?)  +\d+\.\d+ +\d+\.\d+ +\d+\.\d+$", said, re.MULTILINE)
    assert [name.strip() for name in rows] == [
        *("a tick, at work", "script", "style", "layout", "paint", "a tick, by the clock")
    ]
    assert verdicts(said) == 1


def test_a_page_that_draws_few_ticks_is_traced_again() -> None:
    tick = Task(start=0.0, wall=1.0, cpu=1.0, message=True)
    frame = Task(start=2.0, wall=1.0, cpu=1.0, frame=True)
    traces: list[list[Task]] = [[tick], [], [frame, tick, tick], [tick]]

    tasks, ticks, taken = until_enough(lambda: traces.pop(0), 2)

    assert (len(tasks), len(ticks), taken) == (4, 3, 3)
    with pytest.raises(SystemExit, match="nothing was measured"):
        until_enough(list, 2)


def test_a_kernels_report_on_itself_is_measured_in_loops_with_it_and_without() -> None:
    said = bench("report", "-n", "2", "--seconds", "0.2")

    assert re.findall(r"^  (a [\w ]+?)  +\d+ +\d+ ", said, re.MULTILINE) == list(_bench_report._NAMES.values())
    assert re.search(r"^A report takes \d+\.\d+ ms, every \d+\.\d+ s", said, re.MULTILINE)


def test_a_tracked_cell_is_measured_in_pairs_with_one_that_is_not() -> None:
    said = bench("track", "-n", "3", "--cells", "10")

    rows = re.findall(r"^  (\S.*?)  +\d+\.\d+ +\d+\.\d+ +-?\d+\.\d+ ", said, re.MULTILINE)
    assert rows == list(_bench_track._KINDS.values())
    assert verdicts(said) == 1


def test_isolated_calls_are_measured() -> None:
    said = bench("isolate", "-n", "3", "--ours")

    assert len(re.findall(r"^(?:NOT KEPT|kept): \D*[\d.]+ ", said, re.MULTILINE)) == 3


def test_naming_very_many_arrays_is_measured() -> None:
    said = bench("tensors", "-n", "3", "--arrays", "2000")

    rows = re.findall(r"^  ([a-z].*?)  +(\d+\.\d+) +(\d+\.\d+) +(\d+\.\d+)$", said, re.MULTILINE)
    assert [name for name, *_ in rows] == [name.format(2000) for name in _bench_tensors._NAMES.values()]
    assert verdicts(said) == 1


def test_parking_is_measured_beside_the_copies_alone() -> None:
    said = bench("park", "-n", "2", "--arrays", "100", "--mib", "1")

    rows = re.findall(r"^  ( *\S.*?)  +(\d+\.\d+) +(\d+\.\d+) +(\d+\.\d+)$", said, re.MULTILINE)
    assert [name for name, *_ in rows] == [*_bench_park._NAMES.values()]
    rate = r"\d+\.\d\d"
    assert re.search(rf"^  tensorflow +{rate} +{rate} +v\.numpy\(\) +{rate}$", said, re.MULTILINE)
    assert re.search(r"^  torch +N/A +N/A +tensor\.cpu\(\) +N/A$", said, re.MULTILINE)
    assert verdicts(said) == 4
