"""A live table that is not seen: nothing is sent, kernel and server rest, and it is right when a page comes back."""

from __future__ import annotations

import queue
import time
from datetime import datetime
from typing import TYPE_CHECKING

import psutil
import pytest

from tests import waiting
from tests.browser.panel import View, run_all, table_of, visit
from tests.browser.scene import Scene, soon
from tests.jupyter import Notebook
from tests.machine.boards import collectors
from tests.sizes import MIB

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LEASE = 4.0
BRIEF = f"from tfgpu_magic.notebook import widget; widget.PRESENT_FOR = {LEASE}"


def shown(scene: Scene, page: Page, name: str) -> tuple[Notebook, View]:
    """Return a notebook on a page, with a live table; the page shows no other one from before."""
    scene.forget_pages()
    notebook = scene.notebook(name, BRIEF, more=("%tf_gpu top",))
    visit(page, scene, name)
    run_all(page)
    view = table_of(page)
    soon(lambda: view.link().startswith("live"), 30)
    return notebook, view


def said(notebook: Notebook, seconds: float) -> list[str]:
    """Return the types of the messages that a kernel sends to front ends in so many seconds."""
    client, end, heard = notebook.client, time.monotonic() + seconds, []
    while (left := end - time.monotonic()) > 0:
        try:
            heard.append(client.get_iopub_msg(timeout=left)["msg_type"])
        except queue.Empty:
            break
    return heard


def idle(scene: Scene, what: str) -> float:
    """Return the seconds for which the server has known of no activity, of a kernel or of its own."""
    active = scene.server.call(f"{what}?no_track_activity=1")["last_activity"].replace("Z", "+00:00")
    return time.time() - datetime.fromisoformat(active).timestamp()


def quiet(notebook: Notebook) -> None:
    """Wait until a kernel says nothing any more."""
    soon(lambda: not said(notebook, 2.5), 30)


def test_a_table_that_is_seen_draws_with_an_idle_kernel_and_one_in_a_hidden_tab_rests(scene: Scene, page: Page) -> None:
    notebook, view = shown(scene, page, "seen.ipynb")
    quiet(notebook)
    neighbour = scene.machine.add_neighbour("5GiB@1")
    soon(lambda: view.row("neighbour", "1"))
    heard = said(notebook, 6)
    soon(lambda: view.link().startswith("live"))
    since = idle(scene, f"kernels/{notebook.kernel}")
    neighbour.stop()
    tab = page.evaluate("jupyterapp.shell.currentWidget.id")
    page.evaluate("jupyterapp.commands.execute('launcher:create')")
    soon(lambda: not view.root.is_visible())
    quiet(notebook)
    page.evaluate("tab => jupyterapp.shell.activateById(tab)", tab)
    soon(lambda: view.root.is_visible() and view.link().startswith("live"), 30)

    assert heard == []
    assert since > 5


def test_when_the_page_is_closed_everything_rests_and_a_new_page_is_live(
    scene: Scene, page: Page, browser: Browser
) -> None:
    notebook, _ = shown(scene, page, "closed.ipynb")
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    page.close()
    quiet(notebook)
    heard: list[str] = []

    def grown() -> int:  # what is kept for a page that is gone grows without end; else the server may, once
        size = psutil.Process(scene.server.process.pid).memory_info().rss
        heard.extend(said(notebook, 6))
        return psutil.Process(scene.server.process.pid).memory_info().rss - size

    waiting.until(grown, lambda size: size < 2 * MIB)
    since, server_since = idle(scene, f"kernels/{notebook.kernel}"), idle(scene, "status")
    soon(lambda: not collectors(scene.machine), 60)
    neighbour = scene.machine.add_neighbour("5GiB@1")
    again = browser.new_page()
    visit(again, scene, "closed.ipynb")
    view = table_of(again)
    soon(lambda: view.link().startswith("live") and view.row("neighbour", "1"), 30)
    neighbour.stop()
    soon(lambda: not view.row("neighbour", "1"))
    again.close()

    assert heard == []
    assert since > 5
    assert server_since > 5


@pytest.mark.parametrize("restarted", [False, True])
def test_a_table_ends_with_its_kernel_also_when_that_is_restarted_from_elsewhere(
    scene: Scene, page: Page, restarted: bool
) -> None:
    notebook, view = shown(scene, page, f"ended-{restarted}.ipynb")
    quiet(notebook)
    kernel = f"api/kernels/{notebook.kernel}"
    if restarted:
        scene.server.open(f"{kernel}/restart", {}, method="POST").close()
    else:
        scene.server.open(kernel, method="DELETE").close()
    soon(lambda: view.link().startswith("as of "), 30)
