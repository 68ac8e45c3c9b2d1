"""The chart: whole, self-contained, with a value at every place of it, and safe whatever a cell is called."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.sizes import GIB, MIB
from tests.views.test_html import Page
from tfgpu_magic.insight.timeline import CellUse, Level, Sample, Timeline
from tfgpu_magic.insight.usage import PoolUse
from tfgpu_magic.views import chart
from tfgpu_magic.views.chart import Curve
from tfgpu_magic.views.track import CellLine, Session

POOL = PoolUse(framework="TensorFlow", name="GPU:0", gpu="GPU-a", before=GIB, after=2 * GIB, peak=3 * GIB)
CELL = CellUse(number=5, title="model.fit(x, y)", began=1010.0, ended=1020.0, pools=(POOL,))
CURVE = Curve(
    "GPU 0", tuple((1000.0 + second, GIB if second < 20 else 2 * GIB) for second in range(40)), 4 * GIB, (CELL,)
)
HOSTILE = '</title><script>alert("x")</script>\u202e'


def svg(curve: Curve) -> ElementTree.Element:
    found = re.search(r"<svg.*</svg>", chart.draw(curve), re.DOTALL)
    assert found is not None
    return ElementTree.fromstring(found[0])


def test_it_is_whole_and_loads_and_runs_nothing() -> None:
    fragment = chart.draw(CURVE)
    page = Page(fragment)

    assert {tag for tag, _ in page.tags} == {
        *("figure", "figcaption", "div", "span", "svg", "path", "rect", "line", "title"),
    }
    assert not re.search(r"url\(|@import|https?:|javascript:|<script", fragment + chart.STYLE)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_the_values_stand_at_every_place_on_hover() -> None:
    slots = [rect for rect in svg(CURVE).findall("rect") if rect.get("class") == "tfgpu-slot"]
    texts = [rect.findtext("title") or "" for rect in slots]
    edges = [(float(rect.get("x", 0)), float(rect.get("width", 0))) for rect in slots]

    assert len(slots) == 40
    assert edges[0][0] == 0
    assert sum(width for _, width in edges) == pytest.approx(chart.WIDTH, abs=2)
    assert re.fullmatch(r"\d\d:\d\d:\d\d: 1 GiB in use", texts[0])
    assert texts[15].endswith("1 GiB in use\nIn [5] model.fit(x, y): GPU:0 peak 3 GiB")
    assert texts[-1].endswith("2 GiB in use")


def test_the_line_the_cells_peak_and_the_limit_are_drawn_to_scale() -> None:
    drawn = svg(CURVE)
    line = drawn.findall("path")[1].get("d", "")
    heights = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", line)]
    peak = next(rect for rect in drawn.findall("rect") if rect.get("class") == "tfgpu-peak")
    limit = drawn.find("line")

    top = 1.05 * 4
    assert heights[0] == pytest.approx(chart.HEIGHT * (1 - 1 / top), abs=0.1)
    assert heights[-1] == pytest.approx(chart.HEIGHT * (1 - 2 / top), abs=0.1)
    assert float(peak.get("y", 0)) == pytest.approx(chart.HEIGHT * (1 - 3 / top), abs=0.1)
    assert limit is not None
    assert float(limit.get("y1", 0)) == pytest.approx(chart.HEIGHT * (1 - 4 / top), abs=0.1)
    assert "GPU 0: 2 GiB in use, highest 3 GiB, limit 4 GiB" in chart.draw(CURVE)


def test_a_limit_far_above_does_not_flatten_the_line() -> None:
    drawn = svg(replace(CURVE, limit=80 * GIB))

    assert drawn.find("line") is None
    assert "limit 80 GiB" in chart.draw(replace(CURVE, limit=80 * GIB))


@pytest.mark.parametrize("points", [((5.0, 0),), ((5.0, MIB),), ((5.0, 1), (5.0, 1))])
def test_one_point_is_a_chart_too(points: tuple[tuple[float, int], ...]) -> None:
    curve = Curve("GPU 0", points)

    assert svg(curve).findall("rect")
    assert len(chart.line(curve)) == len(points)
    assert "nan" not in chart.draw(curve)


def test_a_long_session_is_thinned_and_its_highest_point_stays() -> None:
    points = [(float(second), MIB) for second in range(5000)]
    points[3333] = (3333.0, GIB)
    curve = Curve("GPU 0", tuple(points))
    slots = [rect for rect in svg(curve).findall("rect") if rect.get("class") == "tfgpu-slot"]

    assert len(slots) <= chart.DRAWN + 1
    assert any("1 GiB in use" in (rect.findtext("title") or "") for rect in slots)
    assert chart.line(curve).count("█") == 1
    assert len(chart.draw(curve)) < 100_000


def test_a_cell_of_any_name_is_text() -> None:
    cell = replace(CELL, title=HOSTILE, error=HOSTILE)
    record = Timeline([Sample(1000.0, (Level("GPU-a", GIB, None),))], [cell])
    shown = Session(record, {"GPU-a": "0"})._repr_html_()

    assert "<script" not in shown
    assert "\u202e" not in shown
    assert "&lt;script&gt;" in shown
    Page(shown)


def test_of_many_cells_the_last_are_in_the_table_and_it_says_so() -> None:
    cells = [replace(CELL, number=number) for number in range(500)]
    session = Session(Timeline([Sample(1000.0, (Level("GPU-a", GIB, None),))], cells))

    for shown in (repr(session), session._repr_html_()):
        assert "In [499]" in shown
        assert "In [299]" not in shown.partition("<svg")[0] + shown.partition("</figure>")[2]
        assert "These are the last 200 of 500 rows" in shown


def test_a_gpu_without_a_number_is_named_by_its_uuid() -> None:
    record = Timeline([Sample(1000.0, (Level("GPU-01234567-89ab-cdef", GIB, None),))])

    assert "GPU ...89ab-cdef: 1 GiB in use" in repr(Session(record))


def test_the_line_below_a_cell_is_one_sentence_for_all_pools_that_changed() -> None:
    pools = (POOL, replace(POOL, framework="PyTorch", name="cuda:0", before=2 * GIB, after=GIB))
    line = CellLine(pools)

    assert repr(line) == ("GPU:0 +1 GiB: 2 GiB in use, peak 3 GiB; PyTorch cuda:0 -1 GiB: 1 GiB in use, peak 3 GiB")
    assert repr(line) in Page(line._repr_html_()).text
