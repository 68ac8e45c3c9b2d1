"""Memory that is held without use, in a page: the notification, the running list, hover values, ending an orphan."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from tests.browser.panel import choose, open_panel, restored, saved, visit
from tests.browser.scene import HOLD, Scene, lab_only, shot, soon
from tests.browser.unused import unused
from tests.slack import SLACK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.jupyter import Notebook

SCRIPT = f"{HOLD}; print('ready', flush=True); import time; time.sleep(600)"
TOAST = ".Toastify__toast"
HELD = "%s has held 0.5 GiB for 2 h without using it"
FORGET = """() => {
  const kept = JSON.parse(localStorage.getItem('tfgpu-magic:unused'));
  const days = Object.entries(kept).filter(([, told]) => typeof told === 'string');
  localStorage.setItem('tfgpu-magic:unused', JSON.stringify(Object.fromEntries(days)));
  Storage.prototype.setItem = () => undefined; // the page may tell once more before it is loaded again
}"""


@pytest.fixture
def notebook(scene: Scene) -> Iterator[Notebook]:
    notebook = scene.notebook("train.ipynb", HOLD)
    yield notebook
    end(scene, notebook)


def end(scene: Scene, notebook: Notebook) -> None:
    scene.server.delete(f"api/sessions/{notebook.session}")
    soon(lambda: scene.held(notebook) == 0, 30)


def test_its_owner_is_told_gently_and_not_again_today(scene: Scene, page: Page, notebook: Notebook) -> None:
    other = scene.notebook("other.ipynb", HOLD)
    unused(scene, notebook, other)
    visit(page, scene)
    toast = page.locator(TOAST, has_text=HELD % "train.ipynb")
    another = page.locator(TOAST, has_text=HELD % "other.ipynb")
    both = page.locator(TOAST, has_text="2 notebooks hold 1.0 GiB without using it:")
    expect(both).to_be_visible(timeout=60_000 * SLACK)  # processes are listed each ten seconds, and looked at as often
    expect(page.locator(TOAST)).to_have_count(1)
    unused(scene, notebook)
    page.evaluate(FORGET)
    page.reload()
    expect(toast).to_be_visible(timeout=60_000 * SLACK)
    shot(page, f"unused-{scene.application}")

    buttons = toast.locator("button", has_text=re.compile("Open|Restart|Shut Down|Not Today"))
    assert buttons.all_inner_texts() == ["Open", "Shut Down…", "Not Today"]
    toast.get_by_text("Not Today").click()
    expect(toast).to_have_count(0)
    unused(scene, notebook, other)
    page.evaluate(FORGET)  # what was told once is told again, but for what is not to be told today
    page.reload()
    expect(another).to_be_visible(timeout=60_000 * SLACK)
    expect(toast).to_have_count(0)
    other.client.execute("import time; time.sleep(600)")  # it is busy with something else
    panel = open_panel(page)
    soon(lambda: (row := panel.row("other.ipynb")) and row.state == "busy", 30)
    another.get_by_text("Shut Down…").click()
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Shut down the kernel of other.ipynb?")
    expect(dialog).to_contain_text("It is busy. 0.5 GiB on GPU 0 come back.")
    dialog.get_by_role("button", name="Shut Down").click()
    soon(lambda: scene.held(other) == 0, 30)
    expect(another).to_have_count(0)


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
    shot(page, f"unused-running-{scene.application}")
    assert whole
    item = page.locator(".jp-RunningSessions-item", has=page.get_by_title("train.ipynb: 0.5 GiB, unused 2 h"))
    item.hover()
    item.get_by_title("Shut Down", exact=True).click()
    expect(page.locator(".jp-Dialog")).to_contain_text("Shut down the kernel of train.ipynb?")
    page.locator(".jp-Dialog .jp-mod-reject").click()
    choose(scene)


@lab_only
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
    shot(page, f"hover-{scene.application}")
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


def orphan(scene: Scene) -> subprocess.Popen[str]:
    process = scene.machine.popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


@lab_only
def test_an_orphan_is_ended_after_asking_and_one_that_has_ended_is_let_be(scene: Scene, page: Page) -> None:
    visit(page, scene)
    panel = open_panel(page)
    with orphan(scene) as first:
        soon(lambda: panel.row("python"), 30)
        panel.press("end", "python")
        dialog = page.locator(".jp-Dialog")
        expect(dialog).to_contain_text(f"It is process {first.pid} of this machine, and no kernel of this server.")
        expect(dialog).to_contain_text("0.5 GiB on GPU 0 come back.")
        shot(page, f"end-{scene.application}")
        dialog.get_by_role("button", name="Cancel").click()
        assert first.poll() is None
        panel.press("end", "python")
        dialog.get_by_role("button", name="End").click()
        assert first.wait(30 * SLACK) == -15
    soon(lambda: panel.row("python") is None, 30)
    with orphan(scene) as second:
        soon(lambda: panel.row("python"), 30)
        panel.press("end", "python")
        second.kill()
        second.wait()
        dialog.get_by_role("button", name="End").click()
        expect(page.locator(TOAST, has_text="python has ended by itself: nothing was done.")).to_be_visible()
