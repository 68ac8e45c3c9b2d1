"""`%tf_gpu top` in JupyterLab and in Notebook 7: live while cells run, and still there when the kernel is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.browser.panel import View, open_panel, opened, restored, run_all, table_of, visit
from tests.browser.scene import Scene, nightly_in_notebook_7, soon
from tests.isolate.notebook import waits_for
from tests.sizes import GIB

if TYPE_CHECKING:
    from playwright.sync_api import Page

GROW = "import time\nkept = []\nfor _ in range(40): kept.append(tf.zeros(2**24)); time.sleep(.2)"
ANSWERED = """\
from tfgpu_magic.notebook.widget import MemoryTable as T
T._one is not None and T._one._outputs._answered"""
MANAGER = "@jupyter-widgets/jupyterlab-manager:plugin"


@pytest.fixture(scope="module", autouse=True)
def saved(site: Scene) -> None:
    """Have widgets' states saved with notebooks."""
    site.server.open(f"lab/api/settings/{MANAGER}", {"raw": json.dumps({"saveState": True})}, method="PUT").close()


@nightly_in_notebook_7
def test_the_table_follows_a_busy_notebook_and_is_saved_with_it(scene: Scene, page: Page) -> None:
    cells = ("%tf_gpu visible 0; growth", "import tensorflow as tf; tf.zeros(1)", "%tf_gpu top", GROW)
    path = "busy.ipynb"
    notebook = scene.notebook(path, *cells[:2], more=cells[2:])
    scene.machine.add_foreign("3GiB@1")
    visit(page, scene, path)
    run_all(page)
    table = table_of(page)
    soon(lambda: (row := table.row("this notebook")) and "1.0 GiB" <= row.held <= "9.9" and "growth" in row.detail, 30)
    soon(lambda: (row := table.row("this notebook")) and row.held == f"{scene.held(notebook) / GIB:.1f} GiB", 30)
    soon(lambda: table.link().startswith("live"))
    soon(lambda: "nobody" in [row.owner for row in table.rows()])
    before = table.rows()
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    scene.server.delete(f"api/sessions/{notebook.session}")
    page.reload()
    restored(page)
    again = table_of(page)
    soon(lambda: again.link().startswith("as of "))

    assert {(row.gpu, row.owner) for row in again.rows()} == {(row.gpu, row.owner) for row in before}


def test_two_views_of_the_table_show_the_same(scene: Scene, page: Page) -> None:
    opened(page, scene, "twice.ipynb", more=("%load_ext tfgpu_magic", "%tf_gpu top", "%tf_gpu top"))
    panel = open_panel(page)
    soon(lambda: panel.link().startswith("live"), 30)
    streams: list[str] = []
    page.on("websocket", lambda socket: streams.append(socket.url))
    run_all(page)
    views = page.locator(".jp-NotebookPanel:visible .jp-OutputArea .tfgpu-view")
    soon(lambda: views.count() == 2, 60)
    neighbour = scene.machine.add_neighbour("5GiB@1")
    both = [View(page, views.nth(number)) for number in range(2)]
    soon(lambda: all(view.row("neighbour", "1") for view in both))
    held = [row.held for view in both for row in view.rows() if row.owner == "neighbour"]
    neighbour.stop()

    assert len(held) == 2
    assert held[0] == held[1]
    assert [url for url in streams if "tfgpu-magic/stream" in url] == []  # they use the page's own


def test_a_table_that_is_made_out_of_sight_is_live_once_it_is_in_sight(scene: Scene, page: Page) -> None:
    away = scene.server.home / "away"
    behind = scene.notebook("behind.ipynb", more=("%load_ext tfgpu_magic", waits_for(away), "%tf_gpu top"))
    scene.notebook("before.ipynb")
    visit(page, scene, behind.path)
    run_all(page)
    visit(page, scene, "before.ipynb")
    away.touch()
    soon(lambda: "True" in behind.run(ANSWERED), 60)
    visit(page, scene, behind.path)
    soon(lambda: table_of(page).link().startswith("live"))
