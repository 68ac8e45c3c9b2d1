"""What the panel costs a page of JupyterLab: its main thread at each tick, and its heap after many; in one run."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from scripts import _soak, _trace
from tests.browser.panel import open_panel, visit
from tests.browser.scene import Scene, chromium, playing, soon
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.neighbours import Holder

GPUS, PROCESSES, MOVING = 8, 256, 8
MOST_A_TICK, MOST_GROWTH, MOST_PART = 8.0, 0.5, 5.0
"""Milliseconds of a tick; megabytes and percent by which the heap may grow."""

_MOST_TRACES = 10
_PARTS = ("script", "style", "layout", "paint")


def main() -> int:
    """Measure, print, and return 0 if the promises are kept."""
    parser = argparse.ArgumentParser("scripts/bench browser", description=__doc__)
    parser.add_argument("-n", "--ticks", type=int, default=60, help="how many are measured, one a second (60)")
    parser.add_argument(
        "--soak",
        type=float,
        nargs="?",
        const=10.0,
        default=1.0,
        metavar="MINUTES",
        help="how long the heap is watched, at ten ticks a second (1; 10 where no number is said)",
    )
    options = parser.parse_args()
    with (
        Machine.create(f"{GPUS}x16GiB", context=64 * 2**20) as machine,
        tempfile.TemporaryDirectory() as home,
        sync_playwright() as playwright,
    ):
        holders = [machine.add_neighbour(f"100MiB@{number % GPUS}") for number in range(PROCESSES)]
        browser = chromium(playwright)
        with playing(machine, Path(home)) as scene:
            page = browser.new_page(viewport={"width": 1300, "height": 900})
            page.add_init_script(_soak.OLD_PAGE)
            visit(page, scene)
            good = [_ticks(browser, page, holders, max(2, options.ticks)), _heap(page, scene, holders, options.soak)]
        browser.close()
    return 0 if all(good) else 1


def _ticks(browser: Browser, page: Page, holders: Sequence[Holder], count: int) -> bool:
    def move() -> None:
        for holder in random.sample(holders, MOVING):
            holder.resize(f"{random.randrange(70, 200)}MiB")

    panel = open_panel(page)
    soon(lambda: len(panel.rows()) == PROCESSES)
    page.evaluate("jupyterapp.shell.collapseLeft()")
    closed = _traced(browser, page, move, count // 2)
    open_panel(page)
    opened, ticks, traces = until_enough(lambda: _traced(browser, page, move, count), max(2, count // 2))
    print(f"{GPUS} GPUs, {PROCESSES} processes, {MOVING} of which move each second; {len(ticks)} ticks.")
    print("The main thread of a page of JupyterLab, in ms:\n")
    print(f"{'':<24}{'median':>9}{'95%':>9}{'max':>9}")
    _row("a tick, at work", [tick.cpu for tick in ticks])
    for part in _PARTS:
        _row(f"  {part}", [tick.part(part) for tick in ticks])
    _row("a tick, by the clock", [tick.wall for tick in ticks])
    spans = ((opened, count * traces), (closed, count // 2))
    each = [sum(task.cpu for task in tasks) / seconds for tasks, seconds in spans]
    print(f"\nAll that it does takes {each[0]:.1f} ms a second, and {each[1]:.1f} while the panel is closed.")
    median = statistics.median(tick.cpu for tick in ticks)
    return _verdict("A tick takes", f"{median:.1f} ms", f"{MOST_A_TICK:g} ms", median <= MOST_A_TICK)


def until_enough(
    traced: Callable[[], Sequence[_trace.Task]], least: int
) -> tuple[list[_trace.Task], list[_trace.Tick], int]:
    """Trace until there are so many ticks: a busy machine draws fewer than one a second.

    Returns:
        All tasks, all ticks, and how many traces it took.
    """
    tasks: list[_trace.Task] = []
    ticks: list[_trace.Tick] = []
    for traces in range(1, _MOST_TRACES + 1):
        tasks += (trace := traced())
        ticks += _trace.ticks(trace)
        if len(ticks) >= least:
            return tasks, ticks, traces
    raise SystemExit("The panel does not follow the stream: nothing was measured.")


def _traced(browser: Browser, page: Page, move: Callable[[], None], seconds: int) -> list[_trace.Task]:
    """Trace a page for a while; nothing is asked of it meanwhile."""
    page.wait_for_timeout(2000)  # what it did before has settled
    browser.start_tracing(page=page, categories=_trace.CATEGORIES)
    for _ in range(seconds):
        move()
        page.wait_for_timeout(1000)
    return _trace.tasks(browser.stop_tracing())


def _row(name: str, values: list[float]) -> None:
    slow = statistics.quantiles(values, n=20)[18]
    print(f"  {name:<22}{statistics.median(values):9.2f}{slow:9.2f}{max(values):9.2f}")


def _heap(page: Page, scene: Scene, holders: Sequence[Holder], minutes: float) -> bool:
    states = _soak.record(scene, holders, MOVING, 30 if minutes >= 0.5 else 5)
    panel = open_panel(page)
    print(f"\n{minutes:g} minutes at {_soak.RATE} ticks a second, in which processes come and go:\n")
    print(f"{'minute':>9}{'ticks':>9}{'heap, MB':>11}{'nodes':>9}{'listeners':>11}")
    heaps, shown = [], set()
    for sample in _soak.soak(page, states, minutes):
        print(
            f"{sample.minute:9.1f}{sample.ticks:9}{sample.heap:11.2f}{sample.nodes:9}{sample.listeners:11}", flush=True
        )
        heaps.append(sample.heap)
        shown.add(tuple(panel.rows()))
    if len(shown) == 1:
        raise SystemExit("The panel does not show what it is fed: nothing was measured.")
    third = len(heaps) // 3  # the least of several: what code is kept compiled differs from one to the next
    before, after = min(heaps[: third + 1]), min(heaps[-third - 1 :])
    grown = after - before
    part = 100 * grown / before
    print()
    what, bound = f"{grown:.2f} MB, {part:.1f} %", f"{MOST_GROWTH:g} MB and {MOST_PART:g} %"
    return _verdict("The heap grows by", what, bound, grown <= MOST_GROWTH and part <= MOST_PART)


def _verdict(what: str, value: str, promised: str, good: bool) -> bool:
    print(f"{what} {value}; at most {promised} promised: {'good' if good else 'NOT GOOD'}.", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
