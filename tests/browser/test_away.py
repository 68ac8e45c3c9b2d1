"""A live table that nobody sees: nothing is sent, kernel and server are idle, and it is right again when somebody comes."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.browser.panel import View, restored, visit
from tests.browser.scene import GIB, Notebook, Scene, playing, shot, soon
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

LEASE = 4.0
BRIEF = f"from tfgpu_magic.views import presence; presence.LEASE = {LEASE}"


@pytest.fixture(scope="module", params=["jupyterlab", "notebook"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with (
        Machine.create("2x16GiB") as machine,
        playing(machine, tmp_path_factory.mktemp("home"), request.param) as scene,
    ):
        yield scene


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    yield page
    page.close()


def table(page: Page) -> View:
    view = page.locator(".jp-NotebookPanel:visible .jp-OutputArea .tfgpu-view").first
    view.wait_for(timeout=30_000)
    return View(page, view)


def shown(scene: Scene, page: Page, name: str) -> tuple[Notebook, View]:
    """A notebook on a page, with a table that is live."""
    notebook = scene.notebook(name, BRIEF, more=("%tf_gpu top",))
    visit(page, scene, name)
    page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
    view = table(page)
    soon(lambda: view.link().startswith("live"), 30)
    return notebook, view


def said(notebook: Notebook, seconds: float) -> list[str]:
    """What a kernel says to front ends in a time."""
    client, end, heard = notebook.client, time.monotonic() + seconds, []
    while (left := end - time.monotonic()) > 0:
        try:
            heard.append(client.get_iopub_msg(timeout=left)["msg_type"])
        except Exception:
            break
    return heard


def quiet(notebook: Notebook) -> None:
    """Wait until a kernel says nothing any more."""
    soon(lambda: not said(notebook, 2.5), 30)


def idle(scene: Scene, notebook: Notebook) -> float:
    """Seconds for which the server knows of no activity of a kernel."""
    model: dict[str, Any] = scene.server.call(f"kernels/{notebook.kernel}")
    active = datetime.fromisoformat(model["last_activity"].replace("Z", "+00:00"))
    return time.time() - active.timestamp()


def server_idle(scene: Scene) -> float:
    active = datetime.fromisoformat(scene.server.call("status?no_track_activity=1")["last_activity"].replace("Z", "+00:00"))
    return time.time() - active.timestamp()


def test_a_table_that_is_seen_draws_and_its_kernel_is_idle(scene: Scene, page: Page) -> None:
    notebook, view = shown(scene, page, "seen.ipynb")
    quiet(notebook)
    neighbour = scene.machine.add_neighbour("5GiB@1")
    soon(lambda: view.row("neighbour", "1"))
    heard = said(notebook, 10)
    live = view.link()
    shot(page, f"{scene.application}-top-live")
    since = idle(scene, notebook)
    neighbour.stop()

    assert heard == []
    assert since > 8
    assert live.startswith("live")
