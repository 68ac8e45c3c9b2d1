"""The built view without a server, in every recorded state: what it draws, tells a pointer and a screen reader."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.browser.panel import recorded, show
from tests.browser.scene import shot
from tests.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@pytest.fixture(scope="module")
def drawn(browser: Browser) -> Iterator[Callable[[str], str]]:
    """A function that returns what is read of a state, as one line; in one page for all."""
    page = browser.new_page()
    yield partial(show, page)
    page.close()


def test_it_shows_who_holds_what(drawn: Callable[[str], str]) -> None:
    text = drawn("sketch")

    assert "0 A100-80GB 61.2 / 80 GiB use 93% · 61 °C · 287 W" in text
    assert "train.ipynb busy 48.0 GiB in use 31.2 peak 44.9 limit 48 GiB use 93%" in text
    assert re.search(r"eval\.ipynb unused 2 h 10\.1 GiB in use 0\.3 peak 9\.8 growth .*10\.1 GiB could come back", text)
    assert "maria 3.1 GiB" in text
    assert "2 Tesla T4 N/A: the GPU is lost" in text


def test_names_are_text_whatever_they_are(browser: Browser) -> None:
    page = recorded(browser, "hostile")
    elements = page.locator("#here").locator("img, script, b").count()
    names = str(page.locator("#here").text_content())
    size = len(page.locator("#here").inner_html())
    page.close()

    assert elements == 0
    assert "<img src=x onerror=alert(1)>" in names
    assert size < 100_000  # however long a name is


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("nobody", "No process holds GPU memory"),
        ("absent", "python -m tfgpu_magic.simgpu --gpus 4x16GiB -- jupyter lab"),
        ("error", "The NVIDIA driver does not answer"),
        ("stale", "stale since"),
        ("mixed", "simulated"),
        ("crowd", "Show 32 more"),
    ],
)
def test_each_state_says_what_it_is(drawn: Callable[[str], str], state: str, sentence: str) -> None:
    assert sentence in drawn(state)


def test_where_nothing_comes_by_itself_it_says_of_when_it_is_and_has_a_button(drawn: Callable[[str], str]) -> None:
    live, saved = drawn("widget&live=true"), drawn("widget&live=false")

    assert live.startswith("GPU memory live · 1 s by memory")
    assert re.match(r"GPU memory as of \d\d:\d\d:\d\d Refresh by memory", saved)


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
    history = groups.first.get_by_role("img", name="Used in the last 10 min: 61.2 GiB at most, of 80.0 GiB")

    expect(groups).to_have_count(3)
    expect(view.get_by_role("region")).to_have_count(0)
    expect(history).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_forced_colours_parts_are_told_apart(view: Page, scheme: str) -> None:
    view.emulate_media(forced_colors="active", color_scheme="dark" if scheme == "dark" else "light")
    grounds: list[str] = view.locator(".tfgpu-view-bar").first.evaluate(_GROUNDS)
    shot(view, f"forced-{scheme}")

    assert len(set(grounds)) == len(grounds) == 4


@pytest.mark.parametrize("width", [220, 320])
def test_a_row_of_any_width_keeps_its_notebooks_name(browser: Browser, width: int) -> None:
    page = recorded(browser, f"sketch&width={width}")
    names = page.locator(".tfgpu-view-owner")
    whole = names.evaluate_all("all => all.map(one => [one.textContent, one.scrollWidth <= one.clientWidth])")
    page.locator(".tfgpu-view-row").first.hover()
    shot(page, f"narrow-{width}")
    page.close()

    assert whole == [["train.ipynb", True], ["eval.ipynb", True], ["maria", True]]


@pytest.mark.parametrize("width", [220, 250, 320])
def test_the_figure_of_a_full_gpu_is_whole_in_any_width(browser: Browser, width: int) -> None:
    page = recorded(browser, f"told&width={width}&told={quote(json.dumps(_FULL))}")
    title = page.locator(".tfgpu-view-title")
    shot(page, f"full-{width}")

    assert "14850.0 / 16384 GiB" in title.inner_text()
    assert title.evaluate("one => one.scrollWidth <= one.clientWidth")
    page.close()


@pytest.mark.parametrize("width", [220, 400])
def test_what_the_driver_allows_the_viewer_stands_by_the_total(browser: Browser, width: int) -> None:
    page = recorded(browser, f"told&width={width}&told={quote(json.dumps(_LIMITED))}")
    title = page.locator(".tfgpu-view-title")
    said = " ".join(title.inner_text().split())
    shot(page, f"limited-{width}")

    assert "limit 32 GiB 95% 49.0 / 80 GiB" in said  # nearly all that the viewer can have, and not of the GPU
    assert title.evaluate("one => one.scrollWidth <= one.clientWidth")
    page.close()


def test_a_hundred_processes_that_came_and_went_leave_nothing_in_the_page(browser: Browser) -> None:
    page = recorded(browser, "crowd")
    few = page.evaluate(_CHURN, [10_000, 10_010])
    many = page.evaluate(_CHURN, [10_010, 10_110])
    page.close()

    assert few > 1000
    assert many == few
