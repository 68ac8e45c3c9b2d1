"""What the panel costs a page of JupyterLab: its main thread at each tick."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from scripts import _trace
from tests.browser.panel import open_panel, visit
from tests.browser.scene import chromium, playing, soon
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.neighbours import Holder

GPUS, PROCESSES, MOVING = 8, 256, 8
MOST_A_TICK = 8.0
"""Milliseconds."""

OLD_PAGE = """(() => {
  const aged = text => {  // a page that was opened ten minutes ago draws longer lines than a new one
    const full = JSON.parse(text);
    if (full.type !== 'full') return text;
    const times = Array.from({ length: 600 }, (_, index) => full.state.time - 600 + index);
    const wave = index => 0.6 + 0.4 * Math.sin(index / 40);
    const used = Object.values(full.state.gpus).map(gpu => [gpu.uuid, times.map((_, index) => gpu.used * wave(index))]);
    return JSON.stringify({ ...full, history: { times, used: Object.fromEntries(used) } });
  };
  window.WebSocket = class extends WebSocket {
    set onmessage(handler) {
      super.onmessage = handler;
      if (!handler || !this.url.includes('tfgpu-magic/stream')) return;
      super.onmessage = event => {
        super.onmessage = handler;
        handler({ data: aged(event.data) });
      };
    }
  };
})()"""
"""Runs in the page before anything else does."""

_MOST_TRACES = 10
_PARTS = ("script", "style", "layout", "paint")


def main() -> int:
    """Measure, print, and return 0 if the promises are kept."""
    parser = argparse.ArgumentParser("scripts/bench browser", description=__doc__)
    parser.add_argument("-n", "--ticks", type=int, default=60, help="how many are measured, one a second (60)")
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
            page.add_init_script(OLD_PAGE)
            visit(page, scene)
            good = _ticks(browser, page, holders, max(2, options.ticks))
        browser.close()
    return 0 if good else 1


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
    good = median <= MOST_A_TICK
    verdict = "good" if good else "NOT GOOD"
    print(f"A tick takes {median:.1f} ms; at most {MOST_A_TICK:g} ms promised: {verdict}.")
    return good


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


if __name__ == "__main__":
    sys.exit(main())
