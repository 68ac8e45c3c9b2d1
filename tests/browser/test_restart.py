"""A kernel that is restarted, from a cell or from the panel: the pages that show its notebook learn of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from tests.browser.panel import View, open_panel, visit
from tests.browser.scene import HOLD, Scene, lab_only, shot, soon
from tests.jupyter import execute
from tests.slack import SLACK

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

KEEP = "import tensorflow as tf; kept = tf.zeros(256 * 2**20 // 4)"


def status(page: Page) -> str:
    """Return what a page says of its notebook's kernel."""
    return str(page.evaluate("jupyterapp.shell.currentWidget.sessionContext.kernelDisplayStatus"))


WATCH = """
jupyterapp.shell.currentWidget.sessionContext.statusChanged.connect((_, status) => (window.seen ??= []).push(status))
"""


def is_at_rest(page: Page) -> bool:
    """Tell whether a page sees its kernel idle; one that connects late may have heard of no restart."""
    seen = page.evaluate("window.seen ?? []")
    return status(page) == "idle" and (not seen or seen[-1] == "idle")


def prompts(page: Page) -> list[str]:
    return [text.strip() for text in page.locator(".jp-CodeCell .jp-InputPrompt").all_inner_texts()]


def restart(panel: View, owner: str) -> None:
    soon(lambda: panel.row(owner))
    panel.press("restart", owner)
    panel.page.locator(".jp-Dialog .jp-mod-warn").click()


def test_a_cell_that_restarts_its_kernel_ends_in_its_page_and_those_after_it_were_not_run(
    scene: Scene, page: Page
) -> None:
    last = "import os; open('ran', 'w').close()"
    made = scene.notebook("again.ipynb", more=(KEEP, "%tf_gpu limit 2GiB --restart", last, "1 + 1"))
    visit(page, scene, made.path)
    page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
    page.get_by_text("Restarting this kernel").wait_for(timeout=60_000 * SLACK)
    soon(lambda: not psutil.pid_exists(made.pid))
    soon(lambda: "[*]:" not in prompts(page), 20)
    soon(lambda: status(page) == "idle", 20)
    shot(page, f"{scene.application}-restarted")
    seen = prompts(page)
    policy = execute(
        scene.server.connect(made.kernel), "from tfgpu_magic.engine import engine; print(engine.current().asked)"
    )

    assert [bool(prompt.strip("[]: ")) for prompt in seen] == [True, True, False, False]
    assert not (scene.server.home / "ran").exists()
    assert policy.endswith("limit 2GiB\n")


@lab_only
def test_a_notebook_that_is_open_where_its_kernel_is_restarted_has_an_idle_one(scene: Scene, page: Page) -> None:
    made = scene.notebook("here.ipynb", HOLD)
    visit(page, scene, made.path)
    panel = open_panel(page)
    page.evaluate(WATCH)
    restart(panel, "here.ipynb")
    soon(lambda: scene.held(made) == 0)
    soon(lambda: page.evaluate("window.seen") and is_at_rest(page))


@lab_only
def test_so_has_one_that_is_open_in_another_page(scene: Scene, page: Page, browser: Browser) -> None:
    made = scene.notebook("there.ipynb", HOLD)
    visit(page, scene, made.path)
    other = browser.new_page(viewport={"width": 1300, "height": 900})
    visit(other, scene)
    page.evaluate(WATCH)
    restart(open_panel(other), "there.ipynb")
    soon(lambda: scene.held(made) == 0)
    soon(lambda: scene.server.call(f"kernels/{made.kernel}")["execution_state"] == "idle")
    soon(lambda: is_at_rest(page))
    other.close()
