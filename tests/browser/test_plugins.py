"""Each part of the page is a plugin of its own: where one is disabled, all others do what they did."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.panel import ID, open_panel, restored, visit
from tests.browser.scene import DISABLED, HOLD, Scene, playing, soon
from tests.slack import SLACK
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

PLUGINS = {"plugin", "panel", "status", "notifications", "running", "chooser", "offers"}

_ACTIVE = """() => jupyterapp.listPlugins()
  .filter(id => id.startsWith('tfgpu-magic:') && jupyterapp.isPluginActivated(id)).map(id => id.split(':')[1])"""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Machine.create("1x16GiB") as machine, playing(machine, tmp_path_factory.mktemp("home")) as scene:
        scene.notebook("a.ipynb", HOLD)
        yield scene


def page_without(browser: Browser, scene: Scene, plugin: str) -> tuple[Page, list[str]]:
    """Return a page of the notebook, as after `jupyter labextension disable`, and the list of its errors."""
    config = scene.server.home / ".jupyter" / "labconfig" / "page_config.json"
    disabled = {**dict.fromkeys(DISABLED, True), f"tfgpu-magic:{plugin}": True}
    config.write_text(json.dumps({"disabledExtensions": disabled}))
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    visit(page, scene, "a.ipynb")
    return page, errors


@pytest.mark.parametrize(
    "plugin",
    ["panel", *(pytest.param(name, marks=pytest.mark.nightly) for name in sorted(PLUGINS - {"plugin", "panel"}))],
)
def test_a_plugin_that_is_disabled_takes_its_own_part_away_and_no_other(
    browser: Browser, scene: Scene, plugin: str
) -> None:
    page, errors = page_without(browser, scene, plugin)
    there = PLUGINS - {plugin}
    soon(lambda: set(page.evaluate(_ACTIVE)) == there, 30)
    item = page.locator(".tfgpu-status-button")
    expect(item).to_have_count(int("status" in there), timeout=30_000 * SLACK)
    if "panel" in there:
        panel = open_panel(page)
        soon(lambda: [row.owner for row in panel.rows()] == ["a.ipynb"])
        expect(page.locator(".tfgpu-panel-offer")).to_have_count(int("chooser" in there))
    else:
        item.hover()
        title = str(item.get_attribute("title"))
        item.click()
        assert re.fullmatch(r"GPU 0: 0\.\d / 16 GiB", title)  # and nothing of a click
        expect(page.locator(f"#{ID}")).to_have_count(0)
    if "running" in there:
        page.evaluate("void jupyterapp.shell.activateById('jp-running-sessions')")
        expect(page.locator(".tfgpu-running")).to_be_visible(timeout=30_000 * SLACK)
    if "chooser" in there:
        page.evaluate("void jupyterapp.commands.execute('tfgpu-magic:choose')")
        expect(page.locator(".tfgpu-choose-words")).to_have_text("%gpu growth", timeout=30_000 * SLACK)

    assert errors == []
    page.close()


def test_without_the_one_that_they_share_there_is_none(browser: Browser, scene: Scene) -> None:
    page, errors = page_without(browser, scene, "plugin")
    restored(page)

    assert page.evaluate(_ACTIVE) == []
    expect(page.locator(f"#{ID}, .tfgpu-status")).to_have_count(0)
    assert errors == []
    page.close()


_DRAWN_LATE = """() => {
  const list = [...jupyterapp.shell.widgets('left')].find(widget => widget.id === 'jp-running-sessions');
  const { constructor: Section, _manager: manager } = [...list.content.widgets].find(
    widget => widget.title.label === 'GPU Memory'
  );
  const { stream } = manager.memory, { state } = stream;
  const come = state => { stream.state = state; stream.listeners.tell(); };
  come(null);
  const late = new Section({ manager });
  late.addClass('drawn-late');
  list.addWidget(late);
  come(state);
}"""
"""Makes the section again as a page does that is loaded with the list open: before there are figures, which come before
React has drawn it."""


def test_the_running_list_shows_the_figures_that_came_before_it_was_drawn(browser: Browser, scene: Scene) -> None:
    page, _ = page_without(browser, scene, "panel")
    page.evaluate("void jupyterapp.shell.activateById('jp-running-sessions')")
    expect(page.locator(".tfgpu-running")).to_be_visible(timeout=30_000 * SLACK)
    page.evaluate(_DRAWN_LATE)

    expect(page.locator(".drawn-late .tfgpu-running")).to_be_visible()
    page.close()
