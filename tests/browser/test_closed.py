"""A page whose panel is closed looks at memory alone, and says so; when the panel opens, it shows the processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.panel import open_panel, visit
from tests.browser.scene import playing, soon
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, WebSocket


def test_a_closed_panel_asks_for_no_processes_and_an_open_one_has_them(browser: Browser, tmp_path: Path) -> None:
    said: list[str | bytes] = []

    def listen(socket: WebSocket) -> None:
        if "tfgpu-magic/stream" in socket.url:
            socket.on("framesent", lambda text: said.append(text))

    with Machine.create("1x16GiB") as machine, playing(machine, tmp_path) as scene:
        page = browser.new_page()
        page.on("websocket", listen)

        def heard() -> list[str | bytes]:
            page.evaluate("0")  # what the page has sent is told while it is asked something
            return said

        visit(page, scene)
        page.locator(".tfgpu-status-button").wait_for(timeout=30_000)
        soon(lambda: heard() == ['{"processes":false}'])
        neighbour = machine.add_neighbour("4GiB@0")
        panel = open_panel(page)
        soon(lambda: [row.owner for row in panel.rows()] != [])
        page.evaluate("void jupyterapp.commands.execute('application:toggle-left-area')")
        soon(lambda: heard() == ['{"processes":false}', '{"processes":true}', '{"processes":false}'])
        page.close()
        neighbour.stop()
