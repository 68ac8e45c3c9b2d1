"""The view of GPUs by notebook, without a server: what it tells a pointer, a screen reader, and in other colours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.panel import View, recorded
from tests.browser.scene import shot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

_GROUNDS = """bar => [...bar.children].map(part => {
  const { backgroundColor, backgroundImage } = getComputedStyle(part);
  return `${backgroundColor} ${backgroundImage}`;
})"""


@pytest.fixture
def view(browser: Browser) -> Iterator[Page]:
    page = recorded(browser, "sketch")
    yield page
    page.close()


def test_a_part_of_a_bar_says_whose_it_is_and_how_much_of_what(view: Page) -> None:
    titles = []
    for part in view.locator(".tfgpu-view-bar").first.locator(".tfgpu-view-part").all():
        part.hover()
        titles.append(part.get_attribute("title"))

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


def test_what_is_parked_says_so_in_a_narrow_view_and_a_name_stays_a_name(browser: Browser) -> None:
    page = recorded(browser, "parked&width=300")
    rows = {row.owner: row for row in View(page, page.locator(".tfgpu-view")).rows()}
    whole = page.locator(".tfgpu-view-parked").evaluate_all("all => all.map(one => one.scrollWidth <= one.clientWidth)")
    shot(page, "parked-states")
    page.close()

    assert {owner.removesuffix(".ipynb"): row.state for owner, row in rows.items()} == {
        "parking": "parking…",
        "parked": "parked 2 h",
        "waiting": "waits for room",
        "restoring": "comes back…",
        "failed": "GPU state lost",
    }
    assert "<img src=x onerror=alert(1)>.ipynb holds most of this GPU" in rows["waiting.ipynb"].detail
    assert "the driver does not answer" in rows["restoring.ipynb"].detail
    assert "restart its kernel, which frees what it holds" in rows["failed.ipynb"].detail
    assert rows["failed.ipynb"].held == "N/A"
    assert whole == [True] * 5
