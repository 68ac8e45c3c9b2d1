"""The table as HTML: whole, self-contained, and safe whatever a process calls itself."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tfgpu_magic.monitor.rows import Table
from tfgpu_magic.views.html import render

from .tables import ABSENT, BUSY, EMPTY, HOSTILE, process, torch

VOID = {"br"}


class Page(HTMLParser):
    """Reads a fragment: its tags, its text without the style, and whether every tag is closed in order."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(fragment)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data + " "

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.parametrize("table", [BUSY, EMPTY, ABSENT, Table()])
def test_it_is_whole_and_loads_and_runs_nothing(table: Table) -> None:
    fragment = render(table)
    page = Page(fragment)

    assert {tag for tag, _ in page.tags} <= {
        *("div", "style", "table", "caption", "thead", "tbody", "tr", "th", "td"),
        *("p", "span", "bdi", "strong", "code", "br"),
    }
    assert not re.search(r"<(?![a-z/])", fragment)  # every < begins a tag
    assert not re.search(r"url\(|@import|https?:|javascript:", fragment)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


@pytest.mark.parametrize("shown", ["61.2 / 80 GiB", "18.8 GiB", "in use 31.2  peak 44.9 GiB", "limit 48 GiB", "hidden"])
def test_it_says_what_the_text_says_of_gpus(shown: str) -> None:
    assert shown in Page(render(BUSY)).text


@pytest.mark.parametrize(
    "shown",
    ["this notebook", "2373", "48.0 GiB", "<0.1 GiB", "N/A", "others", "TensorFlow is ready."],
)
def test_it_says_what_the_text_says_of_processes(shown: str) -> None:
    assert shown in Page(render(BUSY)).text


def test_tables_have_captions_and_headers_that_screen_readers_find() -> None:
    page = Page(render(BUSY))

    assert len(page.all("caption")) == len(page.all("table")) == 2
    assert {head["scope"] for head in page.all("th")} == {"col", "row"}
    assert len([head for head in page.all("th") if head["scope"] == "row"]) == len(BUSY.gpus) + len(BUSY.processes)


def test_a_bar_says_in_words_what_it_draws() -> None:
    bars = [tag for tag in Page(render(BUSY)).all("div") if tag.get("role") == "img"]

    assert [bar["aria-label"] for bar in bars] == ["this notebook 48.0 GiB, others 13.2 GiB, free 18.8 GiB"]


def test_the_parts_of_a_bar_are_as_wide_as_the_shares() -> None:
    widths = [float(width) for width in re.findall(r'style="width:([\d.]+)%"', render(BUSY))]

    assert widths == pytest.approx([60, 16.5, 23.5])


def test_a_legend_names_the_patterns_that_are_there() -> None:
    nothing_held = (replace(BUSY.gpus[0], shares=BUSY.gpus[0].shares[-1:]),)

    assert "others · free" in Page(render(BUSY)).text.replace("  ", " ")
    assert "yours, elsewhere" not in render(BUSY)
    assert 'tfgpu-keys"' not in render(replace(EMPTY, gpus=nothing_held))


def test_every_colour_has_a_fallback_for_front_ends_without_a_theme() -> None:
    assert "var(--jp-" in render(BUSY)
    assert not re.search(r"var\(--jp-[a-z0-9-]+\)", render(BUSY))


def test_a_hostile_name_is_text_and_nothing_else() -> None:
    fragment = render(replace(EMPTY, processes=(process(owner=HOSTILE), process(owner="<b>" * 3_000))))
    page = Page(fragment)

    assert "<img src=x onerror=alert(1)>?evil??[31m?&quot;" in page.text
    assert not {"img", "b"} & {tag for tag, _ in page.tags}
    assert not set(fragment) & set("\u202e\x1b\ud800")
    assert len(fragment) < 10_000


def test_hostile_names_of_gpus_and_policies_are_text_too() -> None:
    row = replace(BUSY.gpus[0], name=HOSTILE, logical="<i>", policy=HOSTILE, gpu="<u>")
    failed = replace(BUSY.gpus[2], error=HOSTILE)
    page = Page(render(replace(BUSY, gpus=(row, failed), summary=HOSTILE, notes=(HOSTILE,))))

    assert not {"img", "i", "u"} & {tag for tag, _ in page.tags}


def test_nobody_is_said() -> None:
    assert "No process holds GPU memory." in Page(render(EMPTY)).text


def test_without_a_driver_it_says_what_to_do_and_how_to_try_it() -> None:
    text = Page(render(ABSENT)).text

    assert "No NVIDIA driver was found." in text
    assert "python -m tfgpu_magic.simgpu --gpus 4x16GiB -- jupyter lab" in text
    assert "TensorFlow is not imported." in text


def test_a_simulated_machine_says_so() -> None:
    assert "Simulated GPUs:" in Page(render(replace(EMPTY, simulated=True))).text


def test_pytorchs_own_figures_stand_below_the_process() -> None:
    assert (
        "PyTorch allocated 0.5  peak 0.5  reserved 1.2 GiB"
        in Page(render(replace(EMPTY, processes=(torch(0.5, 1.25),)))).text
    )


def test_what_the_driver_keeps_is_told_by_the_bar() -> None:
    row = replace(BUSY.gpus[0], free=int(18.5 * 2**30))

    assert "free 18.8 GiB, kept by the driver 0.3 GiB" in render(replace(BUSY, gpus=(row,)))


def test_a_warning_stands_out() -> None:
    assert "<p><strong>Warning:</strong> it does not fit any more.</p>" in render(
        replace(BUSY, notes=("Warning: it does not fit any more.",))
    )
