"""`scripts/bench` measures what it says; whether the figures are good, a person decides on a quiet machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_load_is_measured_in_pairs_and_by_its_parts() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts._bench_load", "-n", "2"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )

    rows = re.findall(r"^  (\S.*?)  +(\d+\.\d) +(\d+\.\d) +(\d+\.\d)$", done.stdout, re.MULTILINE)
    assert [name for name, *_ in rows] == [
        *("IPython alone", "with both lines", "beyond, pair by pair") * 2,
        *("import tfgpu_magic", "%load_ext tfgpu_magic", "%tf_gpu limit 2GiB", "a second %tf_gpu limit"),
    ]
    assert "TensorFlow was not imported." in done.stdout
    assert done.returncode == (1 if "OVER" in done.stdout else 0)


def test_monitor_is_measured_beside_bare_pynvml_and_nvitop() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts._bench_monitor", "-n", "2", "--processes", "8"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )

    rows = re.findall(r"^  ( *\S.*?)  +(\d+\.\d+) +(\d+\.\d+) +(\d+\.\d+)$", done.stdout, re.MULTILINE)
    assert [name.strip() for name, *_ in rows] == [
        *("bare pynvml loop", "a collector's tick", "without lists", "nvitop.take_snapshots"),
        *("a reader's look", "nothing new", "every row new"),
    ]
    assert done.stdout.count("promised: ") == 3
    assert done.returncode == (1 if "NOT GOOD" in done.stdout else 0)


def test_pages_are_measured_beside_an_idle_server_and_tables_beside_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts._bench_stream", "-n", "1", "--seconds", "3", "--pages", "5", "--kernels", "2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )

    rows = re.findall(r"^ +(\d+) +\d+\.\d+ +\d+\.\d+ +\d+\.\d+ ", done.stdout, re.MULTILINE)
    kernels = re.findall(r"^ +(\d+) +\d+\.\d+$", done.stdout, re.MULTILINE)
    assert rows == ["0", "1", "5"]
    assert kernels == ["1", "2"]
    assert done.stdout.count("promised: ") == 4
    assert done.returncode == (1 if "NOT GOOD" in done.stdout else 0)


def test_a_page_is_measured_tick_by_tick_and_its_heap_afterwards() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts._bench_browser", "-n", "4", "--soak", "0.1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )

    rows = re.findall(r"^  ( *\S.*?)  +\d+\.\d+ +\d+\.\d+ +\d+\.\d+$", done.stdout, re.MULTILINE)
    assert [name.strip() for name in rows] == [
        *("a tick, at work", "script", "style", "layout", "paint", "a tick, by the clock")
    ]
    assert len(re.findall(r"^ +\d\.\d +\d+ +\d+\.\d+ +\d+ +\d+$", done.stdout, re.MULTILINE)) == 11
    assert done.stdout.count("promised: ") == 2
    assert done.returncode == (1 if "NOT GOOD" in done.stdout else 0)
