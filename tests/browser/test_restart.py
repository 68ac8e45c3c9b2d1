"""A kernel that is restarted, from a cell or from the panel: the pages that show its notebook learn of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from tests.browser.panel import open_panel, opened, run_all, visit
from tests.browser.scene import HOLD, TAKE, Scene, nightly_in_notebook_7, soon
from tests.slack import SLACK

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def status(page: Page) -> str:
    """Return what a page says of its notebook's kernel."""
    return str(page.evaluate("jupyterapp.shell.currentWidget.sessionContext.kernelDisplayStatus"))


WATCH = """() => {
  const { sessionContext } = jupyterapp.shell.currentWidget;
  sessionContext.statusChanged.connect((_, status) => (window.seen ??= []).push(status));
  sessionContext.connectionStatusChanged.connect((_, status) => (window.linked = status));
}"""


def is_at_rest(page: Page) -> bool:
    """Tell whether a page sees its kernel idle; one that connects late may have heard of no restart."""
    seen = page.evaluate("window.seen ?? []")
    return status(page) == "idle" and (not seen or seen[-1] == "idle")


def prompts(page: Page) -> list[str]:
    return [text.strip() for text in page.locator(".jp-CodeCell .jp-InputPrompt").all_inner_texts()]


@nightly_in_notebook_7
def test_a_cell_that_restarts_its_kernel_ends_in_its_page_and_those_after_it_were_not_run(
    scene: Scene, page: Page
) -> None:
    last = "import os; open('ran', 'w').close()"
    made = opened(page, scene, "again.ipynb", more=(TAKE, "%tf_gpu limit 2GiB --restart", last, "1 + 1"))
    run_all(page)
    page.get_by_text("Restarting this kernel").wait_for(timeout=60_000 * SLACK)
    soon(lambda: not psutil.pid_exists(made.pid))
    soon(lambda: "[*]:" not in prompts(page), 20)
    soon(lambda: status(page) == "idle", 20)
    seen = prompts(page)
    policy = scene.policy(made)

    assert [bool(prompt.strip("[]: ")) for prompt in seen] == [True, True, False, False]
    assert not (scene.server.home / "ran").exists()
    assert policy == "limit 2GiB"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another page"])
def test_a_notebook_whose_kernel_is_restarted_has_an_idle_one(
    scene: Scene, page: Page, browser: Browser, elsewhere: bool
) -> None:
    made = opened(page, scene, "restarted.ipynb", HOLD)
    place = browser.new_page(viewport={"width": 1300, "height": 900}) if elsewhere else page
    visit(place, scene)
    page.evaluate(WATCH)
    panel = open_panel(place)
    soon(lambda: panel.row("restarted.ipynb"))
    panel.press("restart", "restarted.ipynb")
    place.locator(".jp-Dialog .jp-mod-warn").click()
    soon(lambda: scene.held(made) == 0)
    soon(lambda: scene.server.call(f"kernels/{made.kernel}")["execution_state"] == "idle")
    if not elsewhere:  # the page that restarts a kernel makes its connection anew, before that is over
        soon(lambda: page.evaluate("window.linked === 'connected' && window.seen"))
    soon(lambda: is_at_rest(page))
    scene.server.delete(f"api/sessions/{made.session}")
    if elsewhere:
        place.close()
