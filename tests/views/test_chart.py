"""The chart: whole, self-contained, with a value at every place of it, and safe whatever a cell is called."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.sizes import GIB, MIB
from tests.views.test_table import Page
from tfgpu_magic.insight import chart
from tfgpu_magic.insight.chart import Curve
from tfgpu_magic.insight.measurement import Measurement, PoolUse
from tfgpu_magic.insight.session import Session, cell_line
from tfgpu_magic.insight.timeline import Level, Sample, Timeline

POOL = PoolUse(framework="TensorFlow", name="GPU:0", gpu="GPU-a", before=GIB, after=2 * GIB, peak=3 * GIB)
CELL = Measurement(cell=5, what="model.fit(x, y)", began=1010.0, seconds=10.0, pools=(POOL,))
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
        *("figure", "figcaption", "div", "span", "i", "svg", "path", "rect", "line"),
    }
    assert not re.search(r"url\(|@import|https?:|javascript:|<script", fragment + chart.STYLE)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def slots(curve: Curve) -> list[tuple[float, str]]:
    """Return the widths of the slots that say something on hover, and what each says."""
    found = [one for one in Page(chart.draw(curve)).all("i") if one["data-said"]]
    return [(float((one["style"] or "").removeprefix("flex:")), one["data-said"] or "") for one in found]


def test_the_values_stand_at_every_place_on_hover_beside_the_pointer() -> None:
    found = slots(CURVE)
    sides = [one["class"] for one in Page(chart.draw(CURVE)).all("i")]
    texts = [said for _, said in found]

    assert len(found) == 40
    assert sum(width for width, _ in found) == pytest.approx(chart.WIDTH, abs=2)
    assert re.fullmatch(r"\d\d:\d\d:\d\d: 1 GiB in use", texts[0])
    assert texts[15].endswith("1 GiB in use\nIn [5], GPU:0 peak 3 GiB: model.fit(x, y)")
    assert texts[-1].endswith("2 GiB in use")
    assert sides == ["tfgpu-early"] * 20 + ["tfgpu-late"] * 20
    assert re.search(r"tfgpu-early:hover::after \{ right:", chart.STYLE)
    assert re.search(r"tfgpu-late:hover::after \{ left:", chart.STYLE)


def test_the_line_the_cells_peak_and_the_limit_are_drawn_to_scale() -> None:
    drawn = svg(CURVE)
    line = drawn.findall("path")[1].get("d", "")
    heights = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", line)]
    (peak,) = drawn.findall("rect")
    limit = drawn.find("line")

    top = 4
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

    assert slots(curve)
    assert len(chart.line(curve)) == len(points)
    assert "nan" not in chart.draw(curve)


def test_a_long_session_is_thinned_and_its_highest_point_stays() -> None:
    points = [(float(second), MIB) for second in range(5000)]
    points[3333] = (3333.0, GIB)
    curve = Curve("GPU 0", tuple(points))
    found = slots(curve)

    assert len(found) <= chart.DRAWN + 2
    assert any("1 GiB in use" in said for _, said in found)
    assert chart.line(curve).count("█") == 1
    assert len(chart.draw(curve)) < 100_000


def test_of_many_cells_the_highest_are_drawn_and_none_from_before_the_first_sample() -> None:
    times = [1000.0 + number / 100 for number in range(2000)]
    cells = [replace(CELL, cell=number, began=at, seconds=0.0) for number, at in enumerate(times)]
    high = replace(CELL, cell=7777, pools=(POOL._replace(peak=4 * GIB),))
    early = replace(CELL, cell=8888, began=10.0)
    drawn = chart.draw(replace(CURVE, cells=(early, *cells, high)))

    assert drawn.count("<rect") <= chart.DRAWN
    assert "In [7777]" in drawn
    assert "In [8888]" not in drawn


def test_a_peak_that_may_be_from_before_or_of_another_time_is_not_drawn_as_the_cells() -> None:
    before = replace(CELL, pools=(POOL._replace(peak=40 * GIB, exact=False),))
    other = POOL._replace(name="GPU:1", before=GIB, after=GIB, peak=2 * GIB)  # its peak may be of another moment
    shared = replace(CELL, pools=(POOL, other))

    assert replace(CURVE, cells=(before,)).highest == 2 * GIB
    assert "peak at most 40 GiB" in chart.draw(replace(CURVE, cells=(before,)))
    assert replace(CURVE, cells=(shared,)).highest == 3 * GIB


def test_a_legend_explains_what_is_drawn_where_it_is_more_than_the_line() -> None:
    assert Page(chart.legend([CURVE])).text.split(" · ") == ["in use ", " a cell, up to its peak ", " the limit "]
    assert "the limit" not in chart.legend([replace(CURVE, limit=None)])
    assert chart.legend([replace(CURVE, limit=None, cells=())]) == ""


def test_a_session_of_days_says_the_day() -> None:
    days = Curve("GPU 0", ((1e9, 1), (1e9 + 2 * 86400, 2)))

    assert re.search(r"<span>2001-09-\d\d \d\d:\d\d</span>", chart.draw(days))
    assert "2001" not in chart.draw(replace(days, points=((1e9, 1), (1e9 + 60, 2))))


def test_of_a_long_line_of_code_the_beginning_is_shown() -> None:
    shown = chart.cell_title(replace(CELL, what="history = model.fit(images, labels, epochs=10)"), 20)

    assert shown == "history = model.fit…"
    assert chart.cell_title(CELL, 20) == CELL.what


def test_a_cell_of_any_name_is_text() -> None:
    cell = replace(CELL, what=HOSTILE, error=HOSTILE)
    record = Timeline([Sample(1000.0, (Level("GPU-a", GIB, None),))], [cell])
    shown = Session(record, {"GPU-a": "0"})._repr_html_()

    assert "<script" not in shown
    assert "\u202e" not in shown
    assert "&lt;script&gt;" in shown
    Page(shown)


def test_of_many_cells_the_last_are_in_the_table_and_it_says_so() -> None:
    cells = [replace(CELL, cell=number) for number in range(500)]
    session = Session(Timeline([Sample(1000.0, (Level("GPU-a", GIB, None),))], cells))

    for shown in (repr(session), session._repr_html_()):
        assert "In [499]" in shown
        assert "In [299]" not in shown.partition("<svg")[0] + shown.partition("</figure>")[2]
        assert "These are the last 200 of 500 rows" in shown


def test_a_gpu_that_was_never_used_has_no_chart() -> None:
    samples = [Sample(1000.0 + at, (Level("GPU-a", at, None), Level("GPU-b", 0, None))) for at in range(2)]

    assert repr(Session(Timeline(samples), {"GPU-a": "0", "GPU-b": "1"})).count(" in use") == 1


def test_a_gpu_without_a_number_is_named_by_its_uuid() -> None:
    record = Timeline([Sample(1000.0, (Level("GPU-01234567-89ab-cdef", GIB, None),))])

    assert "GPU GPU-...-cdef: 1 GiB in use" in repr(Session(record))


def test_the_line_below_a_cell_is_one_sentence_for_all_pools_that_changed() -> None:
    pools = (POOL, POOL._replace(framework="PyTorch", name="cuda:0", before=2 * GIB, after=GIB))
    line = cell_line(pools)

    assert repr(line) == "GPU:0: +1 GiB, 2 GiB in use, peak 3 GiB; PyTorch cuda:0: -1 GiB, 1 GiB in use, peak 3 GiB"
    assert repr(line) in Page(line._repr_html_()).text
