"""Settings of the panel do what their titles say, and its commands are in the palette."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.panel import ID, View, choose, open_panel, panel_of, restored, visit
from tests.browser.scene import HOLD, Scene, playing, soon
from tests.jupyter import Notebook
from tests.slack import SLACK
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

NO_PERMISSION = 4


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Machine.create("1x16GiB") as machine, playing(machine, tmp_path_factory.mktemp("home")) as scene:
        machine.add_foreign("3GiB@0")
        yield scene


@pytest.fixture(scope="module")
def notebooks(scene: Scene) -> tuple[Notebook, Notebook]:
    return scene.notebook("a.ipynb", HOLD), scene.notebook("b.ipynb", HOLD)


@pytest.fixture(scope="module")
def panel(browser: Browser, scene: Scene, notebooks: object) -> View:
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    visit(page, scene)
    panel = open_panel(page)
    soon(lambda: len(panel.rows()) == 3)
    return panel


def test_the_keyboard_keeps_its_row_while_figures_are_drawn_and_asks_before_it_shuts_down(
    scene: Scene, panel: View
) -> None:
    page = panel.page
    focused = "document.activeElement.closest('[data-key]')?.querySelector('.tfgpu-view-owner').textContent"

    def keeps() -> bool:  # a page that has just been loaded may take the keyboard to its launcher, once
        page.get_by_role("button", name="a.ipynb", exact=True).focus()
        neighbour = scene.machine.add_neighbour("2GiB@0")  # which is drawn above it
        soon(lambda: len(panel.rows()) == 4)
        kept = page.evaluate(focused)
        neighbour.stop()
        soon(lambda: len(panel.rows()) == 3)
        return bool(kept == page.evaluate(focused) == "a.ipynb")

    soon(keeps, 30)
    while page.evaluate("document.activeElement.dataset.do") != "shutDown":
        page.keyboard.press("Tab")
    row = page.evaluate(focused)
    page.keyboard.press("Enter")
    said = page.locator(".jp-Dialog").inner_text()
    page.keyboard.press("Escape")
    expect(page.locator(".jp-Dialog")).to_have_count(0)

    assert row == "a.ipynb"
    assert "a.ipynb" in said
    assert len([row for row in panel.rows() if row.owner.endswith(".ipynb")]) == 2


def test_the_palette_opens_the_panel_and_the_keyboard_is_there(panel: View) -> None:
    page = panel.page
    page.evaluate("void jupyterapp.commands.execute('application:toggle-left-area')")
    expect(panel.root).to_be_hidden()
    page.keyboard.press("Control+Shift+C")
    page.locator(".lm-CommandPalette-input:visible").fill("gpu memory")
    labels = page.locator(".lm-CommandPalette-itemLabel:visible")
    expect(labels).to_have_text(["Show GPU Memory"])
    page.keyboard.press("Enter")  # the palette may draw its items anew while one is clicked

    panel_of(page)
    page.wait_for_function(f"document.getElementById('{ID}').contains(document.activeElement)")


def test_the_command_opens_a_panel_that_was_moved_into_the_main_area_and_closed_with_all_tabs(panel: View) -> None:
    panel.page.evaluate(f"""() => {{
      const panel = [...jupyterapp.shell.widgets('left')].find(widget => widget.id === '{ID}');
      jupyterapp.shell.add(panel, 'main');
      jupyterapp.shell.activateById(panel.id);
    }}""")
    panel_of(panel.page)
    panel.page.evaluate("jupyterapp.commands.execute('application:close-all')")
    expect(panel.root).to_have_count(0)

    assert open_panel(panel.page).rows()


def test_each_setting_does_what_its_title_says(scene: Scene, panel: View, notebooks: tuple[Notebook, Notebook]) -> None:
    def owners_are(*owners: str) -> bool:
        assert [row.owner for row in panel.rows()] == list(owners)
        return True

    page, (_, busy) = panel.page, notebooks
    history, notes = panel.root.locator(".tfgpu-view-past"), panel.root.get_by_label("Notes")
    item, sensors = page.locator(".tfgpu-status"), panel.root.locator(".tfgpu-view-sensors")
    busy.client.execute("import time; time.sleep(600)")  # it ends with the server
    scene.machine.host_pids()  # of which a note tells, as of a container
    for part in (history, notes, sensors, item):
        expect(part).to_be_visible(timeout=30_000 * SLACK)
    soon(lambda: panel.link() == "live · 1 s")
    used = panel.used()
    choose(scene, others=False, history=False, notes=False, sensors=False, statusBar=False, order="activity")
    page.reload()
    restored(page)
    open_panel(page)
    soon(lambda: panel.link() == "live · 1 s")
    expect(panel.root.locator(".tfgpu-view-gpu")).to_have_count(1)
    for part in (history, notes, sensors):
        expect(part).to_have_count(0)
    expect(item).to_be_hidden()
    scene.machine.host_pids(False)
    soon(lambda: owners_are("b.ipynb", "a.ipynb"), 60)

    assert panel.used() == used  # the bar has others' memory in any case
