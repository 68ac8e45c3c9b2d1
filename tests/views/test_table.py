"""The table as text and as HTML: whole, self-contained, and safe whatever a process calls itself."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.figures import jax
from tests.rows import changed, changed_gpu
from tests.sizes import GIB
from tfgpu_magic.engine.status import Status
from tfgpu_magic.ground.message import warning
from tfgpu_magic.ground.report import GpuUse, LogicalGpu
from tfgpu_magic.ground.rows import Table

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


def html(table: Table) -> str:
    return Status(table)._repr_html_()


DEAF = replace(EMPTY, gpus=(changed_gpu(EMPTY.gpus[0], error="no list of processes"),))
UNUSED = replace(BUSY, time=100.0 + 7200, processes=(changed(process(8), unused=100.0),))
JAX = replace(EMPTY, processes=(replace(process(), use=GpuUse(gpu="0", figures=jax(GIB, 2 * GIB, 4 * GIB))),))
TORCH = replace(EMPTY, processes=(torch(0.5, 1.25),))


@pytest.mark.parametrize(
    ("table", "said", "not_said"),
    [
        (EMPTY, " GPU  Name          Held      Free\n   0  A100  0.0 / 16 GiB  16.0 GiB\nNo process", "Simulated"),
        (DEAF, "GPU 0: no list of processes.", "No process"),
        (replace(ABSENT, absent=False), "No NVIDIA driver was found.", "To try it"),  # one that hangs
        (replace(EMPTY, simulated=True), "Simulated GPUs:", "Policy"),
        (UNUSED, "   0    7     C  eval.ipynb, unused 2 h  8.0 GiB", "idle"),
        (JAX, "JAX in use 1.0  peak 1.0  pool 2.0  limit 4.0 GiB", "PyTorch"),
        (TORCH, "PyTorch allocated 0.5  peak 0.5  reserved 1.2 GiB", "JAX"),
    ],
)
def test_what_there_is_is_said_and_what_is_not_so_is_not(table: Table, said: str, not_said: str) -> None:
    text = repr(Status(table))

    assert said in text
    assert not_said not in text


def test_a_hostile_name_is_text_and_nothing_else() -> None:
    hostile = replace(EMPTY, processes=(process(owner=HOSTILE), process(owner="<b>" * 3_000)))
    text, fragment = repr(Status(hostile)), html(hostile)
    page = Page(fragment)
    row = changed_gpu(BUSY.gpus[0], name=HOSTILE, logical=(LogicalGpu(name="<i>"),), policy=HOSTILE)
    gpus = (row, changed_gpu(BUSY.gpus[2], error=HOSTILE))
    elsewhere = Page(html(replace(BUSY, gpus=gpus, summary=HOSTILE, notes=(HOSTILE,))))

    assert len(text.splitlines()) == 5
    assert max(map(len, text.splitlines())) < 100
    assert "<img src=x onerror=alert(1)>?evil??[31m?&quot;" in page.text
    assert not {"img", "b", "i", "u"} & {tag for tag, _ in page.tags + elsewhere.tags}
    assert not set(text + fragment) & set("\u202e\x1b\ud800")
    assert len(fragment) < 10_000


def test_wide_characters_take_two_columns() -> None:
    processes = (process(owner="学習.ipynb"), process(owner="abcd.ipynb"))
    first, second = repr(Status(replace(EMPTY, processes=processes))).splitlines()[-2:]

    assert first.replace("学習", "abcd") == second


def test_where_no_notebook_looks_each_process_has_its_policy() -> None:
    asked = replace(process(owner="train.py"), use=GpuUse(gpu="0", policy="limit 3.2 GiB", figures=jax(GIB, 0, 0)))
    *_, head, first, _, last = repr(Status(replace(EMPTY, processes=(asked, process())))).splitlines()

    assert head.endswith("Held  Policy")
    assert first.endswith("GiB  limit 3.2 GiB")
    assert "limit" not in last
    assert "limit 3.2 GiB" not in repr(Status(replace(BUSY, processes=(asked,))))


@pytest.mark.parametrize("table", [BUSY, EMPTY, ABSENT, Table()])
def test_it_is_whole_and_loads_and_runs_nothing(table: Table) -> None:
    fragment = html(table)
    page = Page(fragment)

    assert {tag for tag, _ in page.tags} <= {
        *("div", "style", "table", "caption", "thead", "tbody", "tr", "th", "td"),
        *("p", "span", "bdi", "strong", "code", "br"),
    }
    assert not re.search(r"<(?![a-z/])", fragment)  # every < begins a tag
    assert not re.search(r"url\(|@import|https?:|javascript:", fragment)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


@pytest.mark.parametrize("table", [BUSY, EMPTY, ABSENT])
def test_html_says_what_the_text_says(table: Table) -> None:
    drawn = Page(html(table)).text
    first, *_ = text = repr(Status(table)).splitlines()

    assert [words for line in text for words in re.split(" {2,}", line.strip()) if words not in drawn] == []
    assert " ".join(first.split()) in " ".join(drawn.split())  # its columns have the same order


def test_tables_have_captions_and_headers_that_screen_readers_find() -> None:
    page = Page(html(BUSY))

    assert len(page.all("caption")) == len(page.all("table")) == 2
    assert {head["scope"] for head in page.all("th")} == {"col", "row"}
    assert len([head for head in page.all("th") if head["scope"] == "row"]) == len(BUSY.gpus) + len(BUSY.processes)


def test_bars_have_their_parts_in_words_with_the_looks_of_their_rows() -> None:
    elsewhere = replace(process(13, owner="eval.ipynb", pid=9), tone=5)
    drawn = html(replace(BUSY, processes=(replace(process(35, owner="<b>"), tone=0), elsewhere)))
    kept = html(replace(BUSY, gpus=(changed_gpu(BUSY.gpus[0], free=int(18.5 * 2**30)),)))
    nothing = html(replace(EMPTY, gpus=(changed_gpu(BUSY.gpus[0], used=None),)))
    page = Page(drawn)
    bar, _ = [tag for tag in page.all("div") if tag.get("role") == "img"]
    parts = [tag for tag in page.all("span") if "style" in tag][:4]
    widths = [float(width) for width in re.findall(r'style="width:([\d.]+)%"', drawn)][:4]

    assert bar["aria-label"] == "<b> 35.0 GiB, eval.ipynb 13.0 GiB, others 13.2 GiB, free 18.8 GiB"
    assert ", ".join(str(part["title"]) for part in parts) == bar["aria-label"]
    assert [part["class"] for part in parts] == ["tfgpu-c0 tfgpu-p0", "tfgpu-c1 tfgpu-p2", "tfgpu-others", "tfgpu-free"]
    assert drawn.count("tfgpu-key tfgpu-c1 tfgpu-p2") == 1
    assert widths == pytest.approx([43.75, 16.25, 16.5, 23.5])
    assert "free 18.5 GiB, kept by the driver 0.3 GiB" in kept
    assert "tfgpu-free" not in nothing.replace(".tfgpu-free", "")


def test_a_warning_stands_out() -> None:
    drawn = html(replace(BUSY, notes=(warning("it does not fit any more."), "Warning: a name.")))

    assert '<p class="tfgpu-warning"><strong>Warning:</strong> it' in drawn
    assert "<p>Warning: a name.</p>" in drawn


def test_every_colour_has_a_fallback_for_front_ends_without_a_theme() -> None:
    assert "var(--jp-" in html(BUSY)
    assert not re.search(r"var\(--jp-[a-z0-9-]+\)", html(BUSY))
