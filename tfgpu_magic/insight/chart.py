"""Draws what was in use of a GPU over time as SVG, with the values on hover: no script, and nothing loaded."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import NamedTuple

from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.insight.measurement import Measurement, peak_text, pool_name

WIDTH, HEIGHT = 600, 100
"""The size of the box in its own units. It is drawn as wide as there is room."""

DRAWN = 240
"""Points and cells at most: more than there are pixels show nothing new."""

_ROOM = 3  # units above the highest line, which is as thick as that

_STYLE = """
.tfgpu-chart { margin: .2em .5em .6em; }
.tfgpu-chart > figcaption { font-weight: 600; }
.tfgpu-chart > div { display: flex; gap: .5em; }
.tfgpu-chart .tfgpu-y { display: flex; flex-direction: column; justify-content: space-between; text-align: right;
  flex: none; line-height: 1; font-variant-numeric: tabular-nums; font-size: .85em; opacity: .8; }
.tfgpu-chart .tfgpu-plot { flex: 1; min-width: 0; height: 7em; position: relative;
  border: 1px solid var(--jp-border-color2, rgba(128, 128, 128, .35)); border-width: 0 0 1px 1px; }
.tfgpu-chart svg { display: block; width: 100%; height: 100%; }
.tfgpu-chart .tfgpu-x { justify-content: space-between; font-size: .85em; opacity: .8; }
.tfgpu-chart path, .tfgpu-chart line { fill: none; stroke: var(--this); stroke-width: 1.5;
  vector-effect: non-scaling-stroke; }
.tfgpu-chart .tfgpu-area { fill: var(--this); stroke: none; opacity: .2; }
.tfgpu-chart rect { fill: var(--mine); opacity: .35; }
.tfgpu-chart line { stroke: var(--rest); stroke-dasharray: 5 4; }
.tfgpu-slots { position: absolute; inset: 0; display: flex; }
.tfgpu-slots > i:hover { background: rgba(128, 128, 128, .3); }
.tfgpu-slots > i:hover::after { content: attr(data-said); position: absolute; top: .2em; z-index: 1;
  max-width: 75%; padding: .1em .5em; white-space: pre-line; overflow-wrap: anywhere; pointer-events: none;
  font-style: normal; font-size: .85em; color: var(--jp-ui-font-color1, CanvasText);
  background: var(--jp-layout-color1, Canvas); border: 1px solid var(--jp-border-color1, rgba(128, 128, 128, .6)); }
.tfgpu-slots > .tfgpu-early:hover::after { right: .3em; }
.tfgpu-slots > .tfgpu-late:hover::after { left: .3em; }
.tfgpu-keys .tfgpu-key-use { height: 0; border: 0; border-top: 2px solid var(--this); vertical-align: middle; }
.tfgpu-keys .tfgpu-key-peak { background: var(--mine); opacity: .5; }
.tfgpu-keys .tfgpu-key-limit { width: 1.7em; height: 0; border: 0; border-radius: 0; border-top: 2px dashed var(--rest);
  vertical-align: middle; }
"""
STYLE = f"<style>{' '.join(_STYLE.split())}</style>"
"""The style of all charts of a page, in one line as that of `html`."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What was in use of one GPU over time.

    Attributes:
        name: the GPU's name for people.
        points: seconds since the epoch, rising, and bytes in use.
        limit: what its pools may take; None if that is unknown, or nothing limits them.
        cells: the cells that used it, each with its pools on it alone.
    """

    name: str
    points: tuple[tuple[float, int], ...]
    limit: int | None = None
    cells: tuple[Measurement, ...] = ()

    @property
    def highest(self) -> int:
        """The most that is known to have been in use."""
        return max([*(in_use for _, in_use in self.points), *map(_height, self.cells)], default=0)

    @property
    def shows_limit(self) -> bool:
        """Whether the limit is near enough for a line: far above, it would leave the others no height."""
        return self.limit is not None and self.highest > self.limit / 3

    @property
    def caption(self) -> str:
        """The values that matter most, in words."""
        words = f"{self.name}: {rounded(self.points[-1][1])} in use, highest {rounded(self.highest)}"
        return words + (f", limit {rounded(self.limit)}" if self.limit else "")


class _Scale(NamedTuple):
    """The places in the box of times, which are seconds since the epoch, and sizes, up to `top` bytes."""

    begin: float
    end: float
    top: int

    def x(self, at: float) -> float:
        return WIDTH * (min(max(at, self.begin), self.end) - self.begin) / (self.end - self.begin)

    def y(self, count: int) -> float:
        return HEIGHT * (1 - count / self.top)


def draw(curve: Curve) -> str:
    """Draw a curve as a figure of HTML, for a page that has `STYLE`."""
    points = _thin(curve.points)
    begin, end = points[0][0], max(points[-1][0], points[0][0] + 1.0)
    scale = _Scale(begin, end, max(curve.highest, curve.limit or 0 if curve.shows_limit else 0, 1))
    cells = _highest_cells([cell for cell in curve.cells if cell.ended >= begin])
    caption = escape(curve.caption)
    return (
        f'<figure class="tfgpu-chart"><figcaption>{caption}</figcaption>'
        f'<div><div class="tfgpu-y"><span>{rounded(scale.top)}</span><span>0</span></div>'
        f'<div class="tfgpu-plot"><svg viewBox="0 {-_ROOM} {WIDTH} {HEIGHT + _ROOM}" preserveAspectRatio="none" '
        f'role="img" aria-label="{caption}">{"".join(_shapes(curve, points, cells, scale))}</svg>'
        f'<div class="tfgpu-slots">{"".join(_slots(points, cells, scale))}</div></div></div>'
        f'<div class="tfgpu-x"><span>{_clock(begin, end)}</span><span>{_clock(end, begin)}</span></div></figure>'
    )


def _shapes(
    curve: Curve, points: Sequence[tuple[float, int]], cells: Sequence[Measurement], scale: _Scale
) -> Iterator[str]:
    """Draw what is in use, the cells that used it, and the limit."""
    along = " L".join(f"{scale.x(at):.1f} {scale.y(in_use):.1f}" for at, in_use in points)
    yield f'<path class="tfgpu-area" d="M0 {HEIGHT} L{along} L{scale.x(points[-1][0]):.1f} {HEIGHT} Z"/>'
    for cell in cells:
        left, above = scale.x(cell.began), scale.y(_height(cell))
        width = max(scale.x(cell.ended) - left, 1.5)
        yield f'<rect x="{left:.1f}" y="{above:.1f}" width="{width:.1f}" height="{HEIGHT - above:.1f}"/>'
    yield f'<path d="M{along}"/>'
    if curve.shows_limit:
        level = f"{scale.y(curve.limit or 0):.1f}"
        yield f'<line x1="0" x2="{WIDTH}" y1="{level}" y2="{level}"/>'


def _slots(points: Sequence[tuple[float, int]], cells: Sequence[Measurement], scale: _Scale) -> Iterator[str]:
    """Draw a slot around each point, which says on hover what is known of that time."""
    times = [at for at, _ in points]
    middles = [times[0], *((a + b) / 2 for a, b in pairwise(times)), scale.end]
    for (at, in_use), (left, right) in zip(points, pairwise(middles), strict=True):
        running = [cell for cell in cells if cell.began <= right and cell.ended >= left]
        said = escape("\n".join([f"{_clock(at, at)}: {rounded(in_use)} in use", *map(_cell_text, running[:3])]))
        side = "late" if 2 * scale.x(at) > WIDTH else "early"
        yield f'<i class="tfgpu-{side}" style="flex:{scale.x(right) - scale.x(left):.1f}" data-said="{said}"></i>'


def _cell_text(cell: Measurement) -> str:
    peaks = ", ".join(f"{pool_name(pool.framework, pool.name)} peak {peak_text(pool)}" for pool in cell.pools)
    return f"{cell_name(cell)}, {peaks}: {cell_title(cell, 40)}"


def legend(curves: Sequence[Curve]) -> str:
    """Explain what is drawn, if it is more than one thing."""
    drawn = {"use": "in use"}
    drawn |= {"peak": "a cell, up to its peak"} if any(curve.cells for curve in curves) else {}
    drawn |= {"limit": "the limit"} if any(curve.shows_limit for curve in curves) else {}
    sample = '<span><span class="tfgpu-key tfgpu-key-{}" aria-hidden="true"></span>{}</span>'
    keys = [sample.format(*one) for one in drawn.items()]
    # The dots separate them where a front end removes the style, as those of `html` do.
    return f'<p class="tfgpu-keys">{" · ".join(keys)}</p>' if len(keys) > 1 else ""


def line(curve: Curve) -> str:
    """Draw a curve in one line of text: ``▁▂▅█``."""
    highest = max(curve.highest, 1)
    thinned = _thin(curve.points, _WIDTH)
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, count * len(_BLOCKS) // highest)] for _, count in thinned)


_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 40  # characters


def cell_name(cell: Measurement) -> str:
    """Write a cell's number: ``In [5]``."""
    return "a cell" if cell.cell is None else f"In [{cell.cell}]"


def cell_title(cell: Measurement, longest: int) -> str:
    """Write a cell's title, of a longer one the beginning, which says most."""
    whole = len(cell.what) <= longest
    return phrases.clean(cell.what if whole else cell.what[: longest - 1], longest=longest) + ("" if whole else "…")


def _clock(at: float, other: float) -> str:
    """Write a time, with its day if another time is a day away."""
    return time.strftime("%H:%M:%S" if abs(at - other) < 86400 else "%Y-%m-%d %H:%M", time.localtime(at))


def _height(cell: Measurement) -> int:
    """Return the most that a cell is known to have used. Pools on one GPU may have had their peaks at other times."""
    peaks = [pool.peak for pool in cell.pools if pool.exact]
    return max([*peaks, sum(pool.before for pool in cell.pools), sum(pool.after for pool in cell.pools)])


def _highest_cells(cells: list[Measurement]) -> list[Measurement]:
    """Return the cells that are drawn, in the order of time: of too many the highest."""
    return sorted(sorted(cells, key=_height)[-DRAWN:], key=lambda cell: cell.began)


def _thin(points: Sequence[tuple[float, int]], most: int = DRAWN) -> list[tuple[float, int]]:
    """Return fewer points, each the highest of those that it stands for. The first and the last stay."""
    step = math.ceil(len(points) / most)
    if step == 1:
        return list(points)
    between = points[1:-1]
    highest = [max(between[at : at + step], key=lambda point: point[1]) for at in range(0, len(between), step)]
    return [points[0], *highest, points[-1]]
