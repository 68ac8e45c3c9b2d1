"""Memory that is held without use, in a page: the notification, the running list, hover values, ending an orphan."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from tests.browser.panel import choose, open_panel, restored, saved, visit
from tests.browser.scene import HOLD, Scene, nightly_in_notebook_7, soon
from tests.browser.unused import unused
from tests.slack import SLACK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.jupyter import Notebook

SCRIPT = f"{HOLD}; print('ready', flush=True); import time; time.sleep(600)"


@pytest.fixture
def notebook(scene: Scene) -> Iterator[Notebook]:
    notebook = scene.notebook("train.ipynb", HOLD)
    yield notebook
    scene.server.delete(f"api/sessions/{notebook.session}")
    soon(lambda: scene.held(notebook) == 0, 30)


@nightly_in_notebook_7
def test_the_list_of_running_kernels_says_it_too(scene: Scene, page: Page, notebook: Notebook) -> None:
    choose(scene, unused=0)
    unused(scene, notebook)
    visit(page, scene)
    if scene.application == "jupyterlab":
        page.evaluate("jupyterapp.shell.activateById('jp-running-sessions')")
    else:
        page.get_by_role("tab", name="Running").click()
    held = page.locator(".jp-RunningSessions-item", has_text="0.5 GiB, unused 2 h").last  # not the notebook above it
    expect(held).to_be_visible(timeout=60_000 * SLACK)
    whole = held.locator(".jp-RunningSessions-itemLabel").evaluate("label => label.scrollWidth <= label.clientWidth")
    assert whole
    item = page.locator(".jp-RunningSessions-item", has=page.get_by_title("train.ipynb: 0.5 GiB, unused 2 h"))
    item.hover()
    item.get_by_title("Shut Down", exact=True).click()
    expect(page.locator(".jp-Dialog")).to_contain_text("Shut down the kernel of train.ipynb?")
    page.locator(".jp-Dialog .jp-mod-reject").click()
    choose(scene)


def test_the_line_says_its_values_where_the_pointer_is_and_can_be_an_hour(
    scene: Scene, page: Page, notebook: Notebook
) -> None:
    visit(page, scene)
    page.reload()  # the page before has another notebook's past
    restored(page)
    panel = open_panel(page)
    past = panel.root.locator(".tfgpu-view-past").first
    says = panel.root.locator(".tfgpu-view-at").first

    def pointed() -> re.Match[str] | None:  # its place changes while the panel is drawn, and its end while memory moves
        past.hover(timeout=60_000 * SLACK, position={"x": past.evaluate("line => line.clientWidth") - 2, "y": 8})
        return re.match(r"0\.5 GiB at \d\d:\d\d:\d\d$", says.text_content() or "")

    soon(pointed, 20)
    page.mouse.move(0, 0)
    expect(says).to_be_hidden()
    span = panel.root.locator(".tfgpu-view-span").first
    expect(span).to_have_text("10 min")
    with saved(page, "settings"):
        span.click()
    expect(span).to_have_text("1 h")
    page.reload()
    restored(page)
    panel = open_panel(page)
    expect(panel.root.locator(".tfgpu-view-span").first).to_have_text("1 h", timeout=60_000 * SLACK)
    choose(scene)


def test_an_orphan_is_ended_after_asking(scene: Scene, page: Page) -> None:
    visit(page, scene)
    panel = open_panel(page)
    with scene.machine.popen([sys.executable, "-c", SCRIPT], stdout=subprocess.DEVNULL) as first:
        soon(lambda: panel.row("python"), 30)
        panel.press("end", "python")
        dialog = page.locator(".jp-Dialog")
        expect(dialog).to_contain_text(f"It is process {first.pid} of this machine, and no kernel of this server.")
        expect(dialog).to_contain_text("0.5 GiB on GPU 0 come back.")
        dialog.get_by_role("button", name="Cancel").click()
        assert first.poll() is None
        panel.press("end", "python")
        dialog.get_by_role("button", name="End").click()
        assert first.wait(30 * SLACK) == -15
