"""A browser for all files, and for each a server, a context, and a page of JupyterLab that its tests share.

The browser ends before tests of another folder: Playwright keeps an event loop running, which those could not bear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Error, expect, sync_playwright

from tests.browser.scene import Scene, chromium, playing
from tests.slack import SLACK
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, Page


expect.set_options(timeout=5_000 * SLACK)

_CLEAR = """() => {
  document.querySelectorAll('.jp-Dialog').forEach(dialog => dialog.querySelector('.jp-mod-reject').click());
  [...jupyterapp.shell.widgets('main')].forEach(widget => widget.dispose());
  document.querySelectorAll('.Toastify__close-button').forEach(button => button.click());
  delete window.seen;
  delete window.linked;
}"""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """What the pages of a file share, and with that the browser's cache."""
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    context.set_default_timeout(30_000 * SLACK)
    yield context
    context.close()


@pytest.fixture(scope="module")
def kept() -> list[Page]:
    """The page of JupyterLab that the next test gets."""
    return []


@pytest.fixture
def page(context: BrowserContext, kept: list[Page], scene: Scene) -> Iterator[Page]:
    """A page; of JupyterLab it is the one before, without its documents: to load one takes seconds."""
    if kept and scene.application != "jupyterlab":
        kept.pop().close()  # of two pages only one tells what is news
    page = kept.pop() if kept else context.new_page()
    yield page
    if _cleared(page):
        kept.append(page)
    else:
        page.close()


def _cleared(page: Page) -> bool:
    """Make a page of JupyterLab as it was when it was loaded; tell whether that can be."""
    if page.is_closed() or "/lab" not in page.url:
        return False
    try:
        page.emulate_media(forced_colors="none", color_scheme="light")
        page.set_viewport_size({"width": 1300, "height": 900})
        page.evaluate(_CLEAR)
        expect(page.locator(".jp-Dialog, .Toastify__toast")).to_have_count(0)
    except (Error, AssertionError):
        return False
    return True


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A server, which has the pages of both applications."""
    with Machine.create("2x16GiB") as machine, playing(machine, tmp_path_factory.mktemp("home")) as site:
        yield site


@pytest.fixture(scope="module", params=["jupyterlab"])
def scene(request: pytest.FixtureRequest, site: Scene) -> Iterator[Scene]:
    """The server's pages, those of JupyterLab unless a test is of another application."""
    yield Scene(site.machine, site.server, request.param)
    for session in site.server.call("sessions"):
        site.server.delete(f"api/sessions/{session['id']}")
