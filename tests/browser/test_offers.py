"""The lines that an answer offers are buttons in its page, by mouse and by keyboard, and text everywhere else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.panel import open_panel, opened, run_all, visit
from tests.browser.scene import TAKE, Scene, nightly_in_notebook_7, shot, soon
from tests.sizes import GIB
from tests.slack import SLACK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator, Page

    from tfgpu_magic.simgpu.neighbours import Neighbour

REFUSED = "%tf_gpu visible 0; limit 12GiB"
OFFERED = "%tf_gpu pick; limit 12GiB"


@pytest.fixture
def full(scene: Scene) -> Iterator[Neighbour]:
    neighbour = scene.machine.add_neighbour("8GiB@0")
    yield neighbour
    neighbour.stop()
    for kernel in scene.server.call("kernels"):  # what it was promised is offered to nobody else
        scene.server.delete(f"api/kernels/{kernel['id']}")


def run_second(page: Page) -> None:
    page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    page.evaluate("void jupyterapp.commands.execute('notebook:run-cell')")


def sources(page: Page) -> list[str]:
    cells: list[str] = page.evaluate(
        "[...jupyterapp.shell.currentWidget.content.widgets].map(cell => cell.model.sharedModel.getSource())"
    )
    return cells


def offered(page: Page) -> Locator:
    return page.locator(".jp-NotebookPanel:visible .jp-OutputArea .tfgpu-offer")


@nightly_in_notebook_7
@pytest.mark.usefixtures("full")
def test_an_offered_line_takes_the_refused_ones_place_and_runs(scene: Scene, page: Page) -> None:
    opened(page, scene, "offer.ipynb", more=(f"# mine\n{REFUSED}",))
    run_all(page)
    buttons = offered(page)
    expect(buttons.first).to_be_visible(timeout=30_000 * SLACK)
    assert buttons.all_inner_texts()[0] == OFFERED
    assert buttons.count() > 1
    buttons.first.focus()
    page.keyboard.press("Enter")
    soon(lambda: sources(page) == [f"# mine\n{OFFERED}"])
    expect(page.locator(".jp-NotebookPanel:visible .jp-OutputArea")).to_contain_text(
        "takes effect when TensorFlow is imported"
    )
    expect(buttons).to_have_count(0)


def test_a_refused_line_can_wait_instead_until_its_row_ends_that_or_there_is_room(
    scene: Scene, page: Page, full: Neighbour
) -> None:
    opened(page, scene, "queue.ipynb", more=(REFUSED,))
    run_all(page)
    waits = offered(page).filter(has_text="--wait")
    waits.click(timeout=30_000 * SLACK)
    panel = open_panel(page)

    def waiting() -> bool:
        row = panel.row("queue.ipynb")
        return row is not None and "waits for " in row.detail

    soon(waiting)
    shot(page, "waits")
    panel.press("stop", "queue.ipynb")
    output = page.locator(".jp-NotebookPanel:visible .jp-OutputArea")
    expect(output).to_contain_text("The wait for room was interrupted.", timeout=30_000 * SLACK)
    soon(lambda: not panel.row("queue.ipynb"))
    run_all(page)
    soon(waiting)
    full.stop()
    told = page.locator(".Toastify__toast", has_text="queue.ipynb has the room that it waited for, and goes on")
    expect(told).to_be_visible(timeout=30_000 * SLACK)

    expect(output).to_contain_text("takes effect when TensorFlow is imported")
    assert sources(page) == [f"{REFUSED} --wait"]


@pytest.mark.parametrize(
    ("cell", "then"),
    [
        (
            "size = '12GiB'\n%tf_gpu visible 0; limit {size}",
            ["size = '12GiB'\n%tf_gpu visible 0; limit {size}", OFFERED],
        ),
        (
            "%%tf_gpu isolate -o x visible 0; limit 12GiB\nx = 1",
            ["%%tf_gpu isolate -o x pick; limit 12GiB\nx = 1"],
        ),
    ],
    ids=["below a cell that does not have it", "above an isolated cell, with its flags"],
)
@pytest.mark.usefixtures("full")
def test_an_offered_line_comes_where_it_belongs(scene: Scene, page: Page, cell: str, then: list[str]) -> None:
    opened(page, scene, "where.ipynb", more=(cell,))
    run_all(page)
    offered(page).first.click(timeout=60_000 * SLACK)

    soon(lambda: sources(page) == then)


@pytest.mark.usefixtures("full")
def test_the_text_is_saved_with_its_lines_and_is_only_text_where_it_is_not_trusted(scene: Scene, page: Page) -> None:
    made = opened(page, scene, "plain.ipynb", more=(REFUSED,))
    run_all(page)
    expect(offered(page).first).to_be_visible(timeout=30_000 * SLACK)
    reading = page.locator(".jp-NotebookPanel:visible .jp-OutputArea-output pre").inner_text()
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    (output,) = scene.server.call(f"contents/{made.path}")["content"]["cells"][0]["outputs"]
    foreign = json.loads((scene.server.home / "plain.ipynb").read_text())
    foreign["metadata"]["author"] = "somebody else"  # so that it is no longer what the user has signed
    (scene.server.home / "foreign.ipynb").write_text(json.dumps(foreign))
    visit(page, scene, "foreign.ipynb")
    text = page.locator(".jp-NotebookPanel:visible .jp-OutputArea-output pre")
    expect(text).to_contain_text("Fits now:", timeout=30_000 * SLACK)

    assert output["output_type"] == "display_data"
    assert reading.strip() == output["data"]["text/plain"].strip() == text.inner_text().strip()
    assert offered(page).count() == 0


@pytest.mark.usefixtures("full")
def test_a_line_that_is_pressed_before_its_cell_has_ended_is_run_once_it_has(scene: Scene, page: Page) -> None:
    made = scene.notebook("early.ipynb", more=(REFUSED,))
    made.run("get_ipython().events.register('post_run_cell', lambda _: __import__('time').sleep(2))")
    visit(page, scene, made.path)
    run_all(page)
    offered(page).first.dblclick(timeout=30_000 * SLACK)

    expect(page.locator(".jp-NotebookPanel:visible .jp-OutputArea")).to_contain_text(
        "takes effect when TensorFlow is imported"
    )
    assert sources(page) == [OFFERED]


def test_the_lines_of_why_are_buttons_too_and_isolate_comes_above_the_cell_that_ran_out(
    scene: Scene, page: Page
) -> None:
    opened(page, scene, "why.ipynb", f"%tf_gpu limit 1GiB\n{TAKE}", more=("big = tf.zeros(2**29)",))
    run_second(page)
    expect(offered(page).first).to_be_visible(timeout=60_000 * SLACK)
    lines = offered(page).all_inner_texts()
    offered(page).first.click()

    assert lines[0].startswith("%%tf_gpu isolate ")
    assert [line for line in lines[1:] if line.endswith(" --restart")]
    soon(lambda: sources(page)[1] == f"{lines[0]}\nbig = tf.zeros(2**29)")


def test_the_line_that_restarts_asks_first(scene: Scene, page: Page) -> None:
    made = opened(page, scene, "anew.ipynb", TAKE, more=("%tf_gpu limit 2GiB",))
    run_second(page)
    offered(page).click(timeout=30_000 * SLACK)
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Its variables are lost.")
    dialog.locator(".jp-mod-reject").click()
    held = scene.held(made)
    same = sources(page)[1]
    offered(page).click()
    dialog.locator(".jp-mod-warn").click()
    soon(lambda: scene.held(made) == 0, 60)
    policy = soon(lambda: scene.policy(made), 60)

    assert held > GIB
    assert same == "%tf_gpu limit 2GiB"
    assert policy == "limit 2GiB"
