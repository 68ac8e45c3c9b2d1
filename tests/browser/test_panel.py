"""The panel in JupyterLab and in Notebook 7: two notebooks with real TensorFlow, another's memory, and what to do."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect

from tests.browser.panel import ID, View, choose, open_panel, panel_of, restored, saved, use_theme, visit
from tests.browser.scene import HOLD, Scene, in_notebook_7, nightly_in_notebook_7, shot, soon
from tests.jupyter import Notebook
from tests.sizes import MIB
from tests.slack import SLACK
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

SECRETS = ("/opt/secret-tool", "--password=hunter2", "theirs.ipynb")
KEEP = "import tensorflow as tf; kept = [tf.zeros(256 * 2**20 // 4)]"
QUIET = re.compile(r"idle|unused \d+ min")

_COLOURS = """bar => {
  const probe = document.createElement('div');
  probe.style.backgroundColor = 'Canvas';
  bar.append(probe);
  const colours = [bar.firstElementChild, probe].map(each => getComputedStyle(each).backgroundColor);
  probe.remove();
  return colours;
}"""


@pytest.fixture(scope="module", autouse=True)
def foreign(site: Scene) -> None:
    site.machine.add_foreign("3GiB@0", name=" ".join(SECRETS))
    choose(site, unit="MiB")


@pytest.fixture(scope="module")
def train(scene: Scene) -> Notebook:
    return scene.notebook("train.ipynb", "%tf_gpu visible 0; limit 4GiB", KEEP)


@pytest.fixture(scope="module")
def eval_(scene: Scene) -> Notebook:
    return scene.notebook("work/eval.ipynb", "%tf_gpu visible 0; growth", KEEP)


@pytest.fixture(scope="module")
def window(browser: Browser, scene: Scene, train: Notebook, eval_: Notebook) -> Iterator[Page]:
    """A page for all tests, which leave it as they found it: to load one takes seconds."""
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    visit(page, scene, train.path)
    yield page
    page.close()


@pytest.fixture
def panel(window: Page) -> View:
    panel = open_panel(window)
    soon(lambda: panel.row("eval.ipynb"))
    return panel


@pytest.mark.smoke
@in_notebook_7
def test_each_notebook_has_the_drivers_figure_to_the_mib_and_tensorflows_own(
    scene: Scene, panel: View, train: Notebook, eval_: Notebook
) -> None:
    soon(lambda: panel.held("train.ipynb") == scene.held(train) // MIB)
    soon(lambda: panel.held("eval.ipynb") == scene.held(eval_) // MIB)
    # A page that attaches makes a kernel busy for a moment; where all that takes a minute, it is unused by then.
    soon(lambda: (row := panel.row("train.ipynb")) and QUIET.fullmatch(row.state))
    in_use = int(eval_.run("print(tf.config.experimental.get_memory_info('GPU:0')['current'])")) // MIB
    soon(lambda: (row := panel.row("eval.ipynb")) and f"in use {in_use} " in row.detail)
    rows = {row.owner: row for row in panel.rows()}

    assert rows["train.ipynb"].detail.startswith("in use 256 peak 256 limit 4 GiB")
    assert "growth" in rows["eval.ipynb"].detail
    assert rows["nobody"].held == "3072 MiB"
    assert rows["nobody"].detail == ""


def test_another_user_is_a_name_and_a_size_everywhere(scene: Scene, panel: View) -> None:
    soon(lambda: panel.row("nobody"))
    served = scene.server.open("tfgpu-magic/snapshot").read().decode()
    files = (scene.server.home / "board").iterdir
    board = until(lambda: b"".join(path.read_bytes() for path in files()), despite=FileNotFoundError)
    shown = panel.page.content()

    assert "nobody" in shown
    for secret in SECRETS:
        assert secret not in shown
        assert secret.encode() not in board
        assert secret not in served


@pytest.mark.parametrize("what", ["shutDown", "restart"])
@nightly_in_notebook_7
def test_what_a_kernel_gives_back_is_named_first_and_seen_afterwards(scene: Scene, panel: View, what: str) -> None:
    old = scene.notebook("old.ipynb", "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '1'", HOLD)
    soon(lambda: panel.held("old.ipynb", "1") == scene.held(old, 1) // MIB)
    full = panel.used("1")
    panel.press(what, "old.ipynb", "1")
    dialog = panel.page.locator(".jp-Dialog")
    said = str(dialog.inner_text())
    dialog.locator(".jp-mod-warn").click()
    soon(lambda: panel.row("old.ipynb", "1") is None)
    soon(lambda: panel.used("1") == "0 / 16384 MiB")
    offering = panel.root.locator(".tfgpu-view-row:not(:hover):has(:focus-visible)")

    expect(offering).to_have_count(0)  # the keyboard's next row offers nothing to who uses a mouse
    assert "old.ipynb" in said
    assert "512 MiB on GPU 1 come back" in said
    assert full == "512 / 16384 MiB"
    assert scene.held(old, 1) == 0
    soon(lambda: (old.kernel in [kernel["id"] for kernel in scene.server.call("kernels")]) == (what == "restart"))


@in_notebook_7
def test_a_click_opens_the_notebook(scene: Scene, panel: View) -> None:
    if scene.application == "jupyterlab":
        panel.press("open", "eval.ipynb")
        expect(panel.page.locator(".lm-DockPanel-tabBar .lm-mod-current", has_text="eval.ipynb")).to_be_visible(
            timeout=20_000 * SLACK
        )
        expect(panel.root.locator(".tfgpu-view-current .tfgpu-view-owner")).to_have_text(
            "eval.ipynb", timeout=20_000 * SLACK
        )
    else:
        with panel.page.expect_popup() as opened:
            panel.press("open", "eval.ipynb")
        opened.value.wait_for_url("**/notebooks/work/eval.ipynb*", timeout=30_000 * SLACK, wait_until="commit")
        opened.value.close()


def shown_by_layout(scene: Scene) -> str | None:
    """Return what JupyterLab shows on the left when the page is loaded again, by the layout that it has saved."""
    files = [*(scene.server.home / ".jupyter/workspaces").glob("*")]
    shown = [json.loads(file.read_text())["data"]["layout-restorer:data"]["left"]["current"] for file in files]
    return shown[0] if shown else None


@nightly_in_notebook_7
def test_rows_are_sorted_as_is_chosen_and_that_is_kept_with_the_panel(scene: Scene, panel: View) -> None:
    def owners() -> list[str]:
        return [row.owner for row in panel.rows()]

    page = panel.page
    order = panel.root.get_by_label("Order of the rows")
    with saved(page, "settings"):
        order.select_option("name")
    soon(lambda: owners() == ["eval.ipynb", "nobody", "train.ipynb"])
    if scene.application == "jupyterlab":
        soon(lambda: shown_by_layout(scene) == ID)
    page.reload()
    restored(page)
    panel = panel_of(page) if scene.application == "jupyterlab" else open_panel(page)  # Notebook 7 restores no layout
    soon(lambda: owners() == ["eval.ipynb", "nobody", "train.ipynb"])
    with saved(page, "settings"):
        panel.root.get_by_label("Order of the rows").select_option("held")
    soon(lambda: owners()[0] == "train.ipynb")


@pytest.mark.nightly
def test_another_theme_is_taken_at_once(scene: Scene, panel: View) -> None:
    page = panel.page

    def colour() -> str:
        return str(page.locator("#tfgpu-magic-panel").evaluate("e => getComputedStyle(e).backgroundColor"))

    def text() -> str:
        return str(panel.root.evaluate("e => getComputedStyle(e).color"))

    light = colour(), text()
    use_theme(page, "JupyterLab Dark")
    soon(lambda: colour() not in (light[0], "") and text() not in (light[1], ""))
    use_theme(page, "JupyterLab Light")
    soon(lambda: (colour(), text()) == light)


def test_the_status_bar_has_the_fullest_gpu_also_in_forced_colours_and_opens_the_panel(
    scene: Scene, page: Page, train: Notebook
) -> None:
    visit(page, scene)
    item, bar = page.locator(".tfgpu-status"), page.locator(".tfgpu-status-bar")
    expect(item).to_contain_text("GPU 0", timeout=20_000 * SLACK)
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        page.emulate_media(forced_colors="active", color_scheme=scheme)
        used, ground = bar.evaluate(_COLOURS)
        shot(page, f"status-forced-{scheme}")
        assert used != ground, scheme
    item.click()
    soon(lambda: page.locator("#tfgpu-magic-panel .tfgpu-view").is_visible())

    assert "/ 16384 MiB" in item.inner_text()


def test_a_gpu_that_fills_up_is_told_once(scene: Scene, panel: View) -> None:
    page = panel.page
    choose(scene, unit="MiB", threshold=60)
    page.reload()
    restored(page)
    panel = open_panel(page)
    # A driver that hung a moment ago is asked more rarely at first.
    soon(lambda: re.fullmatch(r"live · [1-3] s", panel.link()), 40)
    neighbour = scene.machine.add_neighbour("5GiB@0")  # where notebooks are idle
    toast = page.locator(".Toastify__toast", has_text=re.compile(r"GPU 0 is \d+% full"))
    expect(toast).to_be_visible(timeout=100_000 * SLACK)  # once a notebook there has been idle for a minute
    toast.hover()  # which keeps it
    panel.draw(3)  # the page goes by each message, and so would tell it again
    count = toast.count()
    neighbour.stop()
    choose(scene, unit="MiB")

    assert count == 1


def test_a_driver_that_hangs_is_said_with_since_when_and_the_page_goes_on(scene: Scene, panel: View) -> None:
    owners = {"train.ipynb", "eval.ipynb", "nobody"}
    # What another test has ended stays for a look, as "neighbour, ended".
    soon(lambda: panel.link().startswith("live") and {row.owner for row in panel.rows()} == owners)
    scene.machine.hang("nvmlDeviceGetMemoryInfo", 8)
    begin = time.monotonic()
    soon(lambda: panel.link().startswith("stale since"), 6)
    seconds = time.monotonic() - begin
    rows = panel.rows()
    scene.server.call("status")
    scene.machine.clear_faults()
    soon(lambda: panel.link().startswith("live"), 20)

    assert seconds < 4.5 * SLACK  # a reading that had just begun, and the 3 seconds promised
    assert {row.owner for row in rows} == owners
