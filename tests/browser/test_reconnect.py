"""A server that goes away and comes back: the page says so, and goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.panel import open_panel, visit
from tests.browser.scene import playing, shot, soon
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser


def test_the_panel_goes_on_when_the_server_is_started_again(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    with Machine.create("1x16GiB") as machine, playing(machine, tmp_path) as scene:
        machine.add_neighbour("2GiB@0")
        visit(page, scene)
        panel = open_panel(page)
        soon(lambda: panel.row("neighbour"))
        scene.server.stop()
        soon(lambda: panel.link().startswith("reconnecting"), 20)
        shot(page, "lost")
        kept = panel.rows()
        scene.server.start()
        machine.add_neighbour("3GiB@0")
        soon(lambda: panel.link().startswith("live"), 60)
        soon(lambda: panel.used() == "5.0 / 16 GiB")
        page.close()

    assert [row.owner for row in kept] == ["neighbour"]
