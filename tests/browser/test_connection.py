"""A page's connection: while the panel is closed it is for memory alone, and a server that comes back is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.panel import open_panel, visit
from tests.browser.scene import Scene, playing, soon
from tests.slack import SLACK
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import BrowserContext, Page, WebSocket

MEMORY, PROCESSES = '{"processes":false}', '{"processes":true}'


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Machine.create("1x16GiB") as machine, playing(machine, tmp_path_factory.mktemp("home")) as scene:
        machine.add_neighbour("2GiB@0")
        yield scene


def test_a_closed_panel_asks_for_no_processes_and_an_open_one_has_them(scene: Scene, context: BrowserContext) -> None:
    page = context.new_page()  # whose connection is not there yet
    said: list[str | bytes] = []

    def listen(socket: WebSocket) -> None:
        if "tfgpu-magic/stream" in socket.url:
            socket.on("framesent", lambda text: said.append(text))

    def heard() -> list[str | bytes]:
        page.evaluate("0")  # what the page has sent is told while it is asked something
        return said

    page.on("websocket", listen)
    scene.forget_pages()
    visit(page, scene)
    page.locator(".tfgpu-status-button").wait_for(timeout=30_000 * SLACK)
    page.evaluate("jupyterapp.shell.collapseLeft()")  # a page before this one may have left it open
    soon(lambda: heard()[-1:] == [MEMORY])
    said.clear()
    panel = open_panel(page)
    soon(lambda: panel.row("neighbour"))
    page.evaluate("void jupyterapp.commands.execute('application:toggle-left-area')")
    soon(lambda: heard() == [PROCESSES, MEMORY])
    page.close()


def test_the_panel_goes_on_when_the_server_is_started_again(scene: Scene, page: Page) -> None:
    visit(page, scene)
    panel = open_panel(page)
    soon(lambda: panel.row("neighbour"))
    scene.server.stop()
    soon(lambda: panel.link().startswith("reconnecting"), 20)
    kept = panel.rows()
    scene.server.start()
    scene.machine.add_neighbour("3GiB@0")
    soon(lambda: panel.link().startswith("live"), 60)
    soon(lambda: panel.used() == "5.0 / 16 GiB")

    assert [row.owner for row in kept] == ["neighbour"]
