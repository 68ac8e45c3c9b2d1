"""The built view without a server, in recorded states: what it draws, tells a pointer and a screen reader.

What is read of each state is in `test_transcript.py`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.browser.panel import recorded, show
from tests.browser.scene import shot
from tests.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

_GROUNDS = """bar => [...bar.children].map(part => {
  const { backgroundColor, backgroundImage } = getComputedStyle(part);
  return `${backgroundColor} ${backgroundImage}`;
})"""

_FULL = {
    "gpus": {"0": {"name": "NVIDIA A100-SXM4-80GB", "unified": True, "used": 14850 * GIB, "total": 16384 * GIB}},
    "rows": {"0 7": {"gpu": "0", "who": "mine", "owner": "train.ipynb", "held": 14850 * GIB}},
}

_LIMITED = {
    "gpus": {"0": {"name": "A100", "used": 49 * GIB, "total": 80 * GIB, "free": GIB * 3 // 2, "limit": 32 * GIB}},
    "rows": {"0 7": {"gpu": "0", "who": "mine", "owner": "train.ipynb", "held": 30 * GIB}},
}

_CHURN = """async ([first, last]) => {
  const state = window.make(1e9);  // what each holds moves with the time, and which rows are in sight with that
  for (let number = first; number < last; number += 1) {
    const guest = { gpu: '0', pid: number, kind: 'C', who: 'mine', owner: 'guest', held: 2 ** 34 };
    window.model.set('state', { ...state, rows: { ...state.rows, [`0:${number}`]: guest } });
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    if (!document.querySelector(`[data-key="0:${number}"]`)) throw new Error(`${number} was not drawn`);
  }
  let count = 0;
  const nodes = document.createNodeIterator(document.querySelector('.tfgpu-view'));
  while (nodes.nextNode()) count += 1;
  return count;
}"""
"""Has processes come and go beside the view, and counts what is in the page then."""


@pytest.fixture
def view(browser: Browser) -> Iterator[Page]:
    page = recorded(browser, "sketch")
    yield page
    page.close()


def test_names_are_text_whatever_they_are(browser: Browser) -> None:
    page = recorded(browser, "hostile")
    elements = page.locator("#here").locator("img, script, b").count()
    names = str(page.locator("#here").text_content())
    size = len(page.locator("#here").inner_html())
    page.close()

    assert elements == 0
    assert "<img src=x onerror=alert(1)>" in names
    assert size < 100_000  # however long a name is


def test_a_part_of_a_bar_says_whose_it_is_and_how_much_of_what(view: Page) -> None:
    titles = []
    for part in view.locator(".tfgpu-view-bar").first.locator(".tfgpu-view-part").all():
        part.hover()
        titles.append(part.get_attribute("title"))

    label = view.locator(".tfgpu-view-bar").first.get_attribute("aria-label")

    assert label == "train.ipynb 48.0 GiB, eval.ipynb 10.1 GiB, others 3.1 GiB, free 18.8 GiB"
    assert titles == [
        "train.ipynb: 48.0 / 80 GiB",
        "eval.ipynb: 10.1 / 80 GiB",
        "others: 3.1 / 80 GiB",
        "free: 18.8 / 80 GiB",
    ]


def test_gpus_are_groups_and_no_landmarks_and_their_histories_are_figures_in_words(view: Page) -> None:
    groups = view.get_by_role("group", name=re.compile("^GPU "))
    history = groups.first.get_by_role("slider", name="Used in the last 10 min: 61.2 GiB at most, of 80.0 GiB")

    expect(groups).to_have_count(3)
    expect(view.get_by_role("region")).to_have_count(0)
    expect(history).to_be_visible()


def test_how_much_a_gpu_computes_is_drawn_by_a_click_with_values_by_pointer_key_and_touch(browser: Browser) -> None:
    page = browser.new_page(has_touch=True)
    show(page, "sketch&width=240")
    gpu = page.get_by_role("group", name="GPU 0")
    past, text, computed = (gpu.locator(f".tfgpu-view-{part}") for part in ("past", "at", "computed"))
    hidden, before = text.is_hidden(), computed.get_attribute("d")
    gpu.get_by_role("button", name="use").click()
    expect(computed).to_have_attribute("d", re.compile("^M"))
    expect(past).to_have_accessible_name(re.compile("use 93% at most, dashed$"))
    past.hover(position={"x": 5, "y": 5})
    pointed = text.inner_text()
    page.mouse.move(0, 0)
    expect(text).to_be_hidden()
    past.focus()
    expect(text).to_contain_text("use 93%")
    past.press("Home")
    past.press("ArrowRight")
    at = past.get_attribute("aria-valuenow"), past.get_attribute("aria-valuetext")
    past.press("Tab")
    expect(text).to_be_hidden()
    past.tap(position={"x": 100, "y": 5})
    expect(text).to_be_visible()
    within = text.evaluate("one => one.getBoundingClientRect().left >= 0")
    shot(page, "use-240")
    page.close()

    assert (hidden, before) == (True, "")
    assert re.fullmatch(r"18.4 GiB at \d\d:\d\d:\d\d\nuse 0%", pointed)
    assert at[0] == "2"
    assert re.fullmatch(r"18.4 GiB at \d\d:\d\d:\d\d\nuse 0%", str(at[1]))
    assert within


def test_at_the_panels_usual_width_a_row_is_three_lines_and_its_state_stands_beside_the_name(browser: Browser) -> None:
    page = recorded(browser, "sketch&width=240")
    rows = page.locator(".tfgpu-view-row")
    lines = rows.evaluate_all("rows => rows.map(row => Math.round(row.clientHeight / 17))")
    beside = rows.evaluate_all("""rows => rows.map(row => ['owner', 'state'].map(part =>
      row.querySelector(`.tfgpu-view-${part}`).getBoundingClientRect())).map(([a, b]) => b.top < a.bottom)""")
    page.close()

    assert beside == [True] * len(beside)
    assert max(lines) <= 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_forced_colours_parts_are_told_apart(view: Page, scheme: str) -> None:
    view.emulate_media(forced_colors="active", color_scheme="dark" if scheme == "dark" else "light")
    grounds: list[str] = view.locator(".tfgpu-view-bar").first.evaluate(_GROUNDS)
    shot(view, f"forced-{scheme}")

    assert len(set(grounds)) == len(grounds) == 4


NAMES = ".tfgpu-view-owner"
TITLE = ".tfgpu-view-title"


@pytest.mark.parametrize(
    ("state", "part", "said"),
    [
        ("sketch", NAMES, ["train.ipynb", "eval.ipynb", "maria"]),
        (f"told&told={quote(json.dumps(_FULL))}", TITLE, ["14850.0 / 16384 GiB"]),
        # Nearly all that the viewer can have, and not of the GPU.
        (f"told&told={quote(json.dumps(_LIMITED))}", TITLE, ["limit 32 GiB 95% 49.0 / 80 GiB"]),
    ],
    ids=["names", "a full GPU", "what the driver allows"],
)
@pytest.mark.parametrize("width", [220, 250, 320])
def test_names_and_figures_are_whole_in_any_width(
    browser: Browser, state: str, part: str, said: list[str], width: int
) -> None:
    page = recorded(browser, f"{state}&width={width}")
    texts = [" ".join(text.split()) for text in page.locator(part).all_inner_texts()]
    whole = page.locator(part).evaluate_all("all => all.map(one => one.scrollWidth <= one.clientWidth)")
    shot(page, f"narrow-{width}")
    page.close()

    assert [one for one, text in zip(said, texts, strict=True) if one not in text] == []
    assert all(whole)


def test_a_crowd_is_cut_and_figures_that_do_not_come_by_themselves_have_their_time_and_a_button(
    browser: Browser,
) -> None:
    page = browser.new_page()
    crowd, live, saved = (show(page, state) for state in ("crowd", "widget&live=true", "widget&live=false"))
    page.close()

    assert "Show 32 more" in crowd
    assert live.startswith("GPU memory live · 1 s by memory")
    assert re.match(r"GPU memory as of \d\d:\d\d:\d\d Refresh by memory", saved)


def test_a_hundred_processes_that_came_and_went_leave_nothing_in_the_page(browser: Browser) -> None:
    page = recorded(browser, "crowd")
    few = page.evaluate(_CHURN, [10_000, 10_010])
    many = page.evaluate(_CHURN, [10_010, 10_110])
    page.close()

    assert few > 1000
    assert many == few
