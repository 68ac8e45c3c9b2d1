"""A browser and a server for each module: Playwright keeps an event loop running, which other tests could not bear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.scene import Scene, chromium, playing
from tests.slack import SLACK
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page


expect.set_options(timeout=5_000 * SLACK)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.set_default_timeout(30_000 * SLACK)
    yield page
    page.close()


@pytest.fixture(scope="module", params=["jupyterlab", "notebook"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("home")
    with Machine.create("2x16GiB") as machine, playing(machine, home, request.param) as scene:
        yield scene
