"""Measures the seconds that each file of tests takes, and orders the files by them.

`scripts/test --measure` keeps in seconds.txt, for each file, the seconds of processors that it and all its processes
took, and those on the clock. The longest are begun first, so that none is alone in the end.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

VARIABLE = "TFGPU_TEST_SECONDS"
"""Names the file that lines are added to, if they are to be measured."""

KEPT = Path(__file__).with_name("seconds.txt")
UNKNOWN = 20.0
"""What a file is taken for that was never measured."""


def pytest_configure(config: pytest.Config) -> None:
    """Measure if this is asked for."""
    if to := os.environ.get(VARIABLE):
        config.pluginmanager.register(Measuring(Path(to)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    lines = (line.split() for line in KEPT.read_text().splitlines())
    known = {KEPT.parent / file: float(clock) for _, clock, file in lines}
    items.sort(key=lambda item: -known.get(item.path, UNKNOWN))


class Measuring:
    """Adds a line for each file of tests that has ended, with its fixtures."""

    def __init__(self, to: Path) -> None:
        self._to = to
        self._used = _usage()
        self._before = self._used(), time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        try:
            return (yield)
        finally:
            if nextitem is None or nextitem.path != item.path:
                now = self._used(), time.monotonic()
                processors, clock = (after - before for before, after in zip(self._before, now, strict=True))
                self._before = now
                with self._to.open("a") as file:  # one line at once, as other workers write to it too
                    file.write(f"{processors:.1f} {clock:.1f} {item.path.relative_to(KEPT.parent)}\n")


def _usage() -> Callable[[], float]:
    """Move this process into a cgroup; return how to ask for the seconds of it and its processes, those that live too.

    Where no cgroup can be made, only processes that have ended, and were waited for, are counted.
    """
    for root, file, unit in (("/sys/fs/cgroup/cpuacct", "cpuacct.usage", 1e9), ("/sys/fs/cgroup", "cpu.stat", 1e6)):
        folder = Path(root, f"tfgpu-magic-tests-{os.getpid()}")
        if Path(root, "cgroup.procs").exists():
            with contextlib.suppress(OSError):
                folder.mkdir(exist_ok=True)
                (folder / "cgroup.procs").write_text(str(os.getpid()))
                return partial(_first_number, folder / file, unit)
    return lambda: sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _first_number(file: Path, unit: float) -> float:
    return float(file.read_text().split("\n")[0].split()[-1]) / unit
