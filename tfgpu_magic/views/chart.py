"""Draws what was in use of a GPU over time as SVG, with the values on hover: no script, and nothing loaded."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from tfgpu_magic.insight.timeline import CellUse
from tfgpu_magic.views import phrases
from tfgpu_magic.views.measurement import peak, pool_name, size

WIDTH, HEIGHT = 600, 100
"""The size of the box in its own units; it is drawn as wide as there is room."""

DRAWN = 240
"""Points at most: more than there are pixels show nothing new."""

_STYLE = """
.tfgpu-chart { margin: .2em .5em .8em; }
.tfgpu-chart > figcaption { font-weight: 600; }
.tfgpu-chart > div { display: flex; gap: .5em; }
.tfgpu-chart .tfgpu-y { display: flex; flex-direction: column; justify-content: space-between; text-align: right;
  flex: none; font-variant-numeric: tabular-nums; font-size: .85em; opacity: .8; }
.tfgpu-chart svg { flex: 1; min-width: 0; height: 7em; overflow: hidden;
  border: 1px solid var(--jp-border-color2, rgba(128, 128, 128, .35)); border-width: 0 0 1px 1px; }
.tfgpu-chart .tfgpu-x { display: flex; justify-content: space-between; font-size: .85em; opacity: .8; }
.tfgpu-chart path, .tfgpu-chart line { fill: none; stroke: var(--this); stroke-width: 1.5;
  vector-effect: non-scaling-stroke; }
.tfgpu-chart .tfgpu-area { fill: var(--this); stroke: none; opacity: .2; }
.tfgpu-chart .tfgpu-peak { fill: var(--mine); opacity: .3; }
.tfgpu-chart .tfgpu-limit { stroke: var(--rest); stroke-dasharray: 5 4; }
.tfgpu-chart .tfgpu-slot { fill: transparent; }
.tfgpu-chart .tfgpu-slot:hover { fill: var(--jp-font-color1, currentColor); fill-opacity: .12; }
"""
STYLE = f"<style>{' '.join(_STYLE.split())}</style>"
"""The style of all charts of a page, in one line as that of `html`."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What was in use of one GPU over time.

    Attributes:
        name: the GPU's name for people.
        points: seconds since the epoch, rising, and bytes in use.
        limit: what its pools may take; None where that is unknown, or nothing limits them.
        cells: the cells that used it, each with its pools on it alone.
    """

    name: str
    points: tuple[tuple[float, int], ...]
    limit: int | None = None
    cells: tuple[CellUse, ...] = ()

    @property
    def highest(self) -> int:
        """The most that is drawn."""
        return max([*(in_use for _, in_use in self.points), *(_together(cell) for cell in self.cells)], default=0)

    @property
    def caption(self) -> str:
        """The values that matter most, in words."""
        last = f"{self.name}: {size(self.points[-1][1])} in use, highest {size(self.highest)}"
        return last + (f", limit {size(self.limit)}" if self.limit else "")


def draw(curve: Curve) -> str:
    """Draw a curve as a figure of HTML; its page has `STYLE`."""
    points = _thinned(curve.points)
    begin, end = points[0][0], max(points[-1][0], points[0][0] + 1.0)
    shows_limit = curve.limit is not None and curve.highest > curve.limit / 3
    top = 1.05 * max(curve.highest, curve.limit or 0 if shows_limit else 0, 1)

    def x(at: float) -> float:
        return WIDTH * (at - begin) / (end - begin)

    def y(count: float) -> float:
        return HEIGHT * (1 - count / top)

    line = " L".join(f"{x(at):.1f} {y(count):.1f}" for at, count in points)
    shapes = [f'<path class="tfgpu-area" d="M{x(begin):.1f} {HEIGHT} L{line} L{x(points[-1][0]):.1f} {HEIGHT} Z"/>']
    for cell in curve.cells:
        left, right = x(max(cell.began, begin)), x(min(cell.ended, end))
        shapes.append(
            f'<rect class="tfgpu-peak" x="{left:.1f}" y="{y(_together(cell)):.1f}" '
            f'width="{max(right - left, 1.5):.1f}" height="{HEIGHT * _together(cell) / top:.1f}"/>'
        )
    shapes.append(f'<path d="M{line}"/>')
    if shows_limit and curve.limit is not None:
        level = f"{y(curve.limit):.1f}"
        shapes.append(f'<line class="tfgpu-limit" x1="0" x2="{WIDTH}" y1="{level}" y2="{level}"/>')
    for left, right, text in _slots(curve, points, end):
        shapes.append(
            f'<rect class="tfgpu-slot" x="{x(left):.1f}" y="0" width="{x(right) - x(left):.1f}" height="{HEIGHT}">'
            f"<title>{escape(text)}</title></rect>"
        )
    caption = escape(curve.caption)
    return (
        f'<figure class="tfgpu-chart"><figcaption>{caption}</figcaption>'
        f'<div><div class="tfgpu-y"><span>{size(round(top))}</span><span>0</span></div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{caption}">'
        f"{''.join(shapes)}</svg></div>"
        f'<div class="tfgpu-x"><span>{clock(begin)}</span><span>{clock(end)}</span></div></figure>'
    )


def line(curve: Curve, width: int = 40) -> str:
    """Draw a curve in one line of text: ``▁▂▅█``."""
    highest = max(curve.highest, 1)
    thinned = _thinned(curve.points, width)
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, count * len(_BLOCKS) // highest)] for _, count in thinned)


_BLOCKS = "▁▂▃▄▅▆▇█"


def clock(at: float) -> str:
    """Write a time of the day."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def cell_name(cell: CellUse) -> str:
    """Write a cell's number: ``In [5]``."""
    return "a cell" if cell.number is None else f"In [{cell.number}]"


def _together(cell: CellUse) -> int:
    """Return the highest that a cell may have come to: pools that share a GPU have peaks of their own."""
    return sum(pool.peak for pool in cell.pools)


def _slots(curve: Curve, points: Sequence[tuple[float, int]], end: float) -> Iterator[tuple[float, float, str]]:
    """Give a span of time around each point, and what is to be said of it."""
    times = [at for at, _ in points]
    middles = [times[0], *((a + b) / 2 for a, b in pairwise(times)), end]
    for (at, in_use), (left, right) in zip(points, pairwise(middles), strict=True):
        running = [cell for cell in curve.cells if cell.began <= right and cell.ended >= left]
        lines = [f"{clock(at)}: {size(in_use)} in use"]
        for cell in running[:3]:
            peaks = ", ".join(f"{pool_name(pool.framework, pool.name)} peak {peak(pool)}" for pool in cell.pools)
            lines.append(f"{cell_name(cell)} {phrases.plain(cell.title)}: {peaks}")
        yield left, right, "\n".join(lines)


def _thinned(points: Sequence[tuple[float, int]], most: int = DRAWN) -> list[tuple[float, int]]:
    """Return fewer points, each the highest of those that it stands for; the last one stays."""
    step = math.ceil(len(points) / most)
    thinned = [max(points[at : at + step], key=lambda point: point[1]) for at in range(0, len(points), step)]
    return thinned if thinned[-1] == points[-1] or step == 1 else [*thinned, points[-1]]
