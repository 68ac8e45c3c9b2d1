"""Parking in a page: the panel's button, parked rows, and the notification."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.panel import Row, View, open_panel, panel_of, restored, visit
from tests.browser.scene import Scene, lab_only, shot, soon
from tests.browser.unused import unused
from tests.parking.conftest import workers
from tests.processes import kill
from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

    from tests.jupyter import Notebook

ASK = '%config TfGpuMagics.parking = "ask"'
HOLD = f"from tests.simgpu.on_machine import allocate; allocate({4 * GIB})"
TOAST = ".Toastify__toast"
IDLE = ("idle", "unused")
"""An idle notebook's state, and that of one that has not used its GPU for a minute."""


@pytest.fixture
def notebook(scene: Scene) -> Iterator[Notebook]:
    notebook = scene.notebook("train.ipynb", ASK, HOLD)
    yield notebook
    scene.server.delete(f"api/sessions/{notebook.session}")
    kill(*workers(scene.machine))


def comes_to(panel: View, *states: str) -> Row:
    """Return the notebook's row when its state is one of these."""
    row = until(
        lambda: panel.row("train.ipynb"), lambda row: row is not None and row.state.startswith(states), seconds=30
    )
    assert row is not None
    return row


def test_the_panels_button_parks_and_brings_back(scene: Scene, page: Page, notebook: Notebook) -> None:
    held = scene.held(notebook)
    visit(page, scene)
    panel = open_panel(page)
    comes_to(panel, *IDLE)
    panel.press("park", "train.ipynb")
    row = comes_to(panel, "parked")
    shot(page, f"parked-{scene.application}")

    assert scene.held(notebook) == 0
    assert re.search(r"4\.\d GiB in host memory", row.detail)
    assert row.held == "0.0 GiB"
    panel.press("unpark", "train.ipynb")
    comes_to(panel, *IDLE)
    assert scene.held(notebook) == held


@lab_only
def test_one_without_room_waits_and_says_for_whom(scene: Scene, page: Page, notebook: Notebook) -> None:
    visit(page, scene)
    panel = open_panel(page)
    comes_to(panel, *IDLE)
    panel.press("park", "train.ipynb")
    comes_to(panel, "parked")
    with scene.machine.add_neighbour("14GiB@0", name="hog"):
        soon(lambda: "14.0 GiB" in panel.text(), 30)
        panel.press("unpark", "train.ipynb")
        soon(lambda: "holds most of this GPU" in comes_to(panel, "waits for room").detail)
        shot(page, f"waiting-{scene.application}")
        panel.press("park", "train.ipynb")
        comes_to(panel, "parked")


@lab_only
def test_a_notebook_that_does_not_allow_it_has_no_button(scene: Scene, page: Page) -> None:
    shy = scene.notebook("shy.ipynb", HOLD)
    visit(page, scene)
    panel = open_panel(page)
    soon(lambda: panel.row("shy.ipynb"), 30)

    expect(panel.root.locator('[data-do="restart"]')).to_have_count(1)
    assert panel.root.locator('[data-do="park"]').count() == 0
    scene.server.delete(f"api/sessions/{shy.session}")


@lab_only
def test_one_that_cannot_be_parked_now_says_why_and_stays(scene: Scene, page: Page, notebook: Notebook) -> None:
    held = scene.held(notebook)
    notebook.run("import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()")
    visit(page, scene)
    panel = open_panel(page)
    comes_to(panel, *IDLE)
    panel.press("park", "train.ipynb")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("train.ipynb was not parked", timeout=60_000 * SLACK)
    expect(dialog).to_contain_text("These threads, tasks or callbacks may use the GPU while it is parked")
    shot(page, f"refused-{scene.application}")

    assert scene.held(notebook) == held


@lab_only
def test_the_notification_offers_it_and_goes(scene: Scene, page: Page, notebook: Notebook) -> None:
    unused(scene, notebook)
    visit(page, scene)
    toast = page.locator(TOAST, has_text="train.ipynb has held")
    expect(toast).to_be_visible(timeout=60_000 * SLACK)
    shot(page, f"parking-toast-{scene.application}")
    toast.get_by_text("Park", exact=True).click()
    soon(lambda: scene.held(notebook) == 0, 30)
    expect(toast).to_have_count(0, timeout=60_000 * SLACK)


OWN = """
import ipywidgets
class Own(ipywidgets.IntSlider):
    def get_state(self, *args, **options):
        return super().get_state(*args, **options)
own = Own(description="own"); own
"""


def _next_of(notebook: Notebook) -> Callable[[], dict[str, Any]]:
    """Return what returns the next message's header of those that the kernel answers to whomever."""
    return lambda: notebook.client.get_iopub_msg(timeout=30 * SLACK)["parent_header"]


@lab_only
def test_a_page_that_is_loaded_again_brings_nothing_back_and_draws_widgets_later(
    scene: Scene, page: Page, notebook: Notebook
) -> None:
    """It asks for all widgets' state, and gets no answer that code of the user's has to give."""
    visit(page, scene, "train.ipynb")
    page.evaluate("code => jupyterapp.shell.currentWidget.content.model.cells.get(0).sharedModel.setSource(code)", OWN)
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
    slider = page.locator(".widget-label", has_text="own")
    expect(slider).to_be_visible(timeout=60_000 * SLACK)
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    panel = open_panel(page)
    comes_to(panel, *IDLE)
    panel.press("park", "train.ipynb")
    comes_to(panel, "parked")
    while notebook.client.iopub_channel.msg_ready():
        _next_of(notebook)()
    page.reload()
    restored(page)
    panel = panel_of(page)
    expect(page.get_by_text("Loading widget")).to_be_visible(timeout=60_000 * SLACK)
    until(_next_of(notebook), lambda parent: parent.get("msg_type") == "comm_msg")  # the kernel has heard of it
    notebook.client.kernel_info(reply=True)  # and is through with that
    comes_to(panel, "parked")
    shot(page, "loaded-again")

    assert scene.held(notebook) == 0
    assert notebook.run("print(own.value)") == "0\n"
    expect(slider).to_be_visible(timeout=60_000 * SLACK)
    shot(page, "loaded-again-and-back")
