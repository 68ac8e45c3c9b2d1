"""The site as it is read in a real browser: axe finds nothing, light and dark, and nothing is cut off at any width."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.scene import chromium, shot
from tests.browser.test_axe import violations
from tests.scripts.test_docs import _run

ROOT = Path(__file__).parents[2]
READ = ("index", "teachers", "comparison", "api", "words")
"""The front page, two that it leads to, and one of each other kind."""
WIDTHS = (400, 800, 1400)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = _run("build", ROOT / "docs", folder)

    assert (built.returncode, built.stderr) == (0, "")
    return folder / "html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        yield browser
        browser.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_and_no_page_is_wider_than_its_window(browser: Browser, site: Path, theme: str) -> None:
    found, wide = {}, []
    page = browser.new_page(color_scheme="light" if theme == "light" else "dark")
    for name in READ:
        page.goto((site / f"{name}.html").as_uri())
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            shot(page, f"site-{name}-{width}-{theme}")
            if width != WIDTHS[1]:
                found[name, width] = violations(page, "html")
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide.append((name, width))
    page.close()

    assert {where: what for where, what in found.items() if what} == {}
    assert wide == []
