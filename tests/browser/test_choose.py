"""A policy chosen by hand: from the panel and the toolbar, by mouse and by keyboard, in time and too late."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests import waiting
from tests.browser.panel import open_panel, opened, use_theme, visit
from tests.browser.scene import ASKED, HOLD, TAKE, Scene, nightly_in_notebook_7, shot
from tests.sizes import CONTEXT, GIB
from tests.slack import SLACK
from tfgpu_magic.tell.page_json import VERSION

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

PATIENCE = 20_000 * SLACK
"""Milliseconds in which a dialog comes or goes."""

STREAM = f"globalThis[Symbol.for('tfgpu-magic/stream-{VERSION}')]"
PID = "import os; print(os.getpid())"
IDLE = "[...jupyterapp.serviceManager.kernels._kernelConnections].every(kernel => kernel.status === 'idle')"
HEARD = "jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestExecute({ code: '' }).done.then(() => 0)"
"""Has the page ask its kernel something: with the end of that it has heard of all that others have asked before."""


def chooser(page: Page) -> Locator:
    """Return the dialog, whose kernel has answered."""
    dialog = page.locator(".jp-Dialog.tfgpu-choose-dialog")
    expect(dialog.locator(".tfgpu-choose-words")).to_be_visible(timeout=PATIENCE)
    return dialog


def from_panel(page: Page) -> Locator:
    open_panel(page)
    page.locator(".tfgpu-panel-offer").click()
    return chooser(page)


def from_toolbar(page: Page) -> Locator:
    """Open it by keyboard, once the kernel can be asked: until then the focus is at *Cancel*."""
    button = toolbar(page)
    expect(button).to_be_enabled(timeout=PATIENCE)
    page.wait_for_function("jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'")
    button.press("Enter")
    return chooser(page)


def toolbar(page: Page) -> Locator:
    item = page.locator('.jp-NotebookPanel:visible [data-jp-item-name="tfgpu-magic"]')
    return item.locator("button, jp-button").first


def gpu(dialog: Locator, label: str) -> Locator:
    return dialog.locator(f'[name="tfgpu-choose-gpu"][value="{label}"]')


def words(dialog: Locator) -> str:
    return str(dialog.locator(".tfgpu-choose-words").inner_text())


def accept(dialog: Locator) -> Locator:
    return dialog.locator(".jp-Dialog-footer button").last


@nightly_in_notebook_7
def test_a_limit_chosen_by_mouse_is_in_force_by_the_drivers_account(scene: Scene, page: Page) -> None:
    made = scene.notebook("mouse.ipynb")
    made.run("%unload_ext tfgpu_magic")
    visit(page, scene, made.path)
    dialog = from_panel(page)
    gpu(dialog, "1").check()
    dialog.get_by_label("No more than a limit").check()
    dialog.get_by_label("Unit of the limit").select_option("GiB")
    dialog.get_by_label("Limit, as a number").fill("4")
    expect(dialog.locator(".tfgpu-choose-answer")).to_contain_text("GPU 1: limit 4 GiB")
    asked = words(dialog)
    accept(dialog).click()
    expect(dialog).to_have_count(0)
    expect(page.locator(".Toastify__toast")).to_contain_text("tfgpu_magic was loaded for it.")  # nothing of it is cut
    made.run(TAKE)

    assert asked == "%gpu visible 1; limit 4GiB"
    assert scene.held(made, 0) == 0
    assert 4 * GIB <= scene.held(made, 1) <= 4 * GIB + 2 * CONTEXT


@nightly_in_notebook_7
def test_a_limit_chosen_by_keyboard_is_in_force_and_the_slider_says_bytes_and_percent(scene: Scene, page: Page) -> None:
    made = opened(page, scene, "keyboard.ipynb")
    press = page.keyboard.press

    dialog = from_toolbar(page)
    assert page.evaluate("document.activeElement.name") == "tfgpu-choose-gpu"
    dialog.get_by_label("All of them").focus()
    press("ArrowDown")
    expect(dialog.get_by_label("The one with most free memory")).to_be_checked()
    press("Tab")
    press("ArrowDown")  # no more than a limit
    press("Tab")
    slider = dialog.get_by_label("Limit", exact=True)
    expect(slider).to_be_focused()
    press("ArrowRight")
    value = slider.get_attribute("aria-valuetext")
    press("Home")
    for _ in range(24):
        press("ArrowRight")
    press("Tab")  # the number
    press("Tab")  # the unit
    press("Tab")
    press("Space")  # growing
    asked = words(dialog)
    for _ in range(4):
        press("Tab")
    expect(accept(dialog)).to_be_focused()
    press("Enter")
    expect(dialog).to_have_count(0)

    assert value == "6.6 GiB · 41%"
    assert asked == "%gpu pick; limit 25% --grow"
    assert re.fullmatch(r"(visible \d|pick); limit 25% --grow\n", made.run(ASKED))


def test_too_late_says_the_cell_and_what_is_lost_and_restarts_into_the_policy(scene: Scene, page: Page) -> None:
    made = opened(page, scene, "late.ipynb", "%tf_gpu visible 0; limit 1GiB", TAKE)
    dialog = from_panel(page)
    late = dialog.locator(".tfgpu-choose-late")
    expect(late).to_contain_text("since In [")
    expect(late).to_contain_text("Its variables are lost.")
    expect(late).not_to_contain_text("busy")  # but for the question itself
    label = accept(dialog).inner_text()
    dialog.get_by_label("Limit, as a number").fill("2")
    expect(dialog.locator(".tfgpu-choose-answer")).to_contain_text("GPU 0: limit 2 GiB")
    pid = made.run(PID)
    page.keyboard.press("Enter")  # gives no kernel up
    expect(accept(dialog)).to_be_enabled(timeout=PATIENCE)  # while it works, it is not
    alive = scene.held(made), made.run(PID) == pid
    page.evaluate(HEARD)
    accept(dialog).click()
    expect(dialog).to_have_count(0, timeout=3 * PATIENCE)
    policy = scene.policy(made)

    assert label == "Restart and Apply"
    assert alive[0] >= GIB
    assert alive[1]
    assert scene.held(made) == 0
    assert policy == "visible 0; limit 2GiB"


@pytest.mark.parametrize("here", [True, False], ids=["open here", "not open here"])
def test_the_memory_of_another_notebook_is_set_from_its_row(scene: Scene, page: Page, here: bool) -> None:
    other = f"other-{here}.ipynb"
    made = opened(page, scene, other, HOLD) if here else scene.notebook(other, HOLD)
    opened(page, scene, "current.ipynb")
    panel = open_panel(page)
    waiting.until(lambda: panel.row(other), seconds=30)
    panel.press("choose", other)
    dialog = chooser(page)
    gpu(dialog, "1").check()
    expect(dialog.get_by_role("button", name="Insert as First Cell")).to_have_count(int(here))
    expect(dialog.locator(".tfgpu-choose-answer")).to_contain_text("GPU 1: growth", timeout=PATIENCE)
    page.wait_for_function(IDLE)  # a kernel that is busy with the page's questions is not asked to apply anything
    accept(dialog).click()
    expect(dialog).to_have_count(0, timeout=3 * PATIENCE)  # its kernel uses CUDA already, and is restarted
    expect(page.locator(".Toastify__toast")).to_contain_text(f"{other}: `visible 1; growth`".replace("`", ""))

    assert scene.policy(made) == "visible 1; growth"


def test_a_busy_kernel_is_said_to_be_and_asked_when_its_cell_has_ended(scene: Scene, page: Page) -> None:
    made = opened(page, scene, "busy.ipynb")
    begun, go = scene.server.home / "begun", scene.server.home / "go"
    made.client.execute(
        "import time; from pathlib import Path; Path('begun').touch()\nwhile not Path('go').exists(): time.sleep(0.1)"
    )
    waiting.until(begun.exists)
    open_panel(page)
    page.locator(".tfgpu-panel-offer").click()
    dialog = page.locator(".tfgpu-choose-dialog")
    expect(dialog.locator(".tfgpu-choose-notice")).to_contain_text("The kernel is busy", timeout=PATIENCE)
    disabled = accept(dialog).is_disabled()
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    go.touch()
    expect(dialog.locator(".tfgpu-choose-words")).to_be_visible(timeout=PATIENCE)
    go.unlink()
    begun.unlink()
    expect(accept(dialog)).to_be_enabled()

    assert disabled


def test_a_number_that_cannot_be_is_said_to_be_and_is_never_taken_for_the_one_before(scene: Scene, page: Page) -> None:
    made = opened(page, scene, "number.ipynb")
    from_panel(page)
    dialog = page.get_by_role("dialog", name="GPU memory of number.ipynb")
    dialog.get_by_label("No more than a limit").check()
    free = str(dialog.locator(".tfgpu-choose-figure").first.inner_text())
    number, said = dialog.get_by_label("Limit, as a number"), dialog.locator(".tfgpu-choose-range")
    for wrong in ("0", "-3", "1.5", "500", ""):
        number.fill(wrong)
        number.press("Enter")
        number.press("Tab")
        expect(said).to_have_text(re.compile(r"^1 to \d\d, in steps of 1$"))  # what fits
        expect(said).to_be_visible()
        expect(accept(dialog)).to_be_disabled()
        expect(dialog.locator(".tfgpu-choose-words")).to_be_hidden()
        expect(dialog.locator(".tfgpu-choose-answer")).to_be_hidden()
        expect(number).to_have_value(wrong)
    number.fill("30")
    expect(said).to_be_hidden()
    expect(dialog.locator(".tfgpu-choose-answer")).to_contain_text("4.8 GiB", timeout=PATIENCE)  # and what else it says
    number.press("Enter")
    expect(dialog).to_have_count(0)
    expect(page.locator(".Toastify__toast")).to_contain_text("limit 30%")

    assert free.endswith(" GiB free")
    assert made.run(ASKED) == "limit 30%\n"


def test_a_driver_that_hangs_is_said_keeps_no_kernel_and_can_be_asked_again(scene: Scene, page: Page) -> None:
    made = opened(page, scene, "hangs.ipynb")
    open_panel(page)
    scene.machine.hang("nvmlDeviceGetMemoryInfo", 600)
    try:
        page.locator(".tfgpu-panel-offer").click()
        dialog = page.locator(".tfgpu-choose-dialog")
        notice, again = dialog.locator(".tfgpu-choose-notice"), dialog.get_by_role("button", name="Ask Again")
        expect(notice).to_contain_text("The driver is slow to answer", timeout=PATIENCE)
        answer = made.run("print(1 + 1)")
        expect(notice).to_contain_text("hangs", timeout=3 * PATIENCE)
        disabled = accept(dialog).is_disabled()
    finally:
        scene.machine.clear_faults()
    again.press("Enter")
    expect(gpu(dialog, "all")).to_be_focused(timeout=3 * PATIENCE)
    expect(accept(dialog)).to_be_enabled()

    assert answer == "2\n"
    assert disabled


def test_a_warning_of_the_load_is_said_whole(scene: Scene, page: Page) -> None:
    made = scene.notebook("warned.ipynb")
    made.run("%unload_ext tfgpu_magic")
    made.run("import os; os.environ['TFGPU_POLICY'] = 'limit much'")
    visit(page, scene, made.path)
    dialog = from_panel(page)
    accept(dialog).click()
    told = page.get_by_role("dialog", name="The GPU memory of warned.ipynb is set")
    expect(told).to_contain_text("growth")
    expect(told).to_contain_text("limit much, from $TFGPU_POLICY, is NOT in force: it is not a policy.")
    told.get_by_role("button", name="Close").last.click()
    expect(told).to_have_count(0)

    assert made.run(ASKED) == "growth\n"


def test_where_there_is_no_gpu_no_toolbar_has_the_button(scene: Scene, page: Page) -> None:
    opened(page, scene, "none.ipynb")
    expect(toolbar(page)).to_be_visible(timeout=PATIENCE)
    page.wait_for_function(f"{STREAM}.state")  # a first message after it would take the place of this one
    absent = f"{STREAM}.state = {{ error: 'No GPU.', absent: true, gpus: {{}}, rows: {{}} }}"
    try:
        page.evaluate(f"{absent}; {STREAM}.say({STREAM}.link)")
        expect(toolbar(page)).to_be_hidden(timeout=PATIENCE)
    finally:
        page.evaluate(f"{STREAM}.reconnect()")
    expect(toolbar(page)).to_be_visible(timeout=PATIENCE)


@pytest.mark.nightly
def test_it_is_whole_in_every_theme_and_width(scene: Scene, page: Page) -> None:
    opened(page, scene, "looks.ipynb")
    widths = {}
    for scheme in ("light", "dark", "forced", "narrow"):
        use_theme(page, "JupyterLab Dark" if scheme == "dark" else "JupyterLab Light")
        page.emulate_media(forced_colors="active" if scheme == "forced" else "none")
        dialog = from_toolbar(page)
        dialog.get_by_label("No more than a limit").check()
        if scheme == "narrow":
            page.set_viewport_size({"width": 250, "height": 700})
        expect(dialog.locator(".tfgpu-choose-answer")).to_contain_text(re.compile("It fits|Warning"))
        body = dialog.locator(".jp-Dialog-body")
        widths[scheme] = body.evaluate("body => body.scrollWidth - body.clientWidth")
        shot(page, f"{scene.application}-choose-{scheme}")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)

    assert {scheme for scheme, more in widths.items() if more > 1} == set()
