"""The site as it is read in a real browser: axe finds nothing, light and dark, and nothing is cut off at any width."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.scene import chromium, shot
from tests.browser.test_axe import violations
from tests.scripts.test_docs import _run
from tests.waiting import until

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
READ = ("index", "teachers", "comparison", "api", "commands")
"""The front page, two that it leads to, and one of each other kind."""
WIDTHS = (400, 800, 1400)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, from a server of its own: a browser loads no module from a file."""
    folder = tmp_path_factory.mktemp("site")
    built = _run("build", ROOT / "docs", folder)

    assert (built.returncode, built.stderr) == (0, "")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder / "html"))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        yield browser
        browser.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_and_no_page_is_wider_than_its_window(browser: Browser, site: str, theme: str) -> None:
    found, wide = {}, []
    page = browser.new_page(color_scheme="light" if theme == "light" else "dark")
    for name in READ:
        page.goto(f"{site}/{name}.html")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            shot(page, f"site-{name}-{width}-{theme}")
            if width != WIDTHS[1]:
                with suppress(
                    AssertionError
                ):  # the theme makes what scrolls focusable a moment after a change of width
                    until(partial(violations, page, "html"), lambda found: not found, seconds=3)
                found[name, width] = violations(page, "html")
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide.append((name, width))
    page.close()

    assert {where: what for where, what in found.items() if what} == {}
    assert wide == []


@pytest.mark.parametrize(("motion", "button"), [("no-preference", 0), ("reduce", 1)])
def test_the_front_page_draws_the_live_table_and_asks_no_other_server(
    browser: Browser, site: str, motion: Literal["no-preference", "reduce"], button: int
) -> None:
    page = browser.new_page(reduced_motion=motion)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{site}/index.html")
    table = page.locator("#live")
    table.get_by_text("eval.ipynb").first.wait_for()
    buttons = table.get_by_role("button", name="Refresh").count()
    page.close()

    assert [url for url in asked if not url.startswith((site, "data:"))] == []
    assert buttons == button
