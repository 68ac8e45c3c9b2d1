"""Takes the documentation's pictures: the panel beside a notebook, what cells show, and unused memory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, ViewportSize, sync_playwright

from scripts._scratch import scratch
from tests.browser.panel import open_panel, table_of, visit
from tests.browser.scene import Scene, chromium, playing
from tests.browser.test_choose import STREAM
from tests.browser.unused import unused
from tests.machine.boards import board_of
from tests.sizes import GIB
from tfgpu_magic.ground.process_kind import SIMULATED_USER
from tfgpu_magic.machine.board.history import HISTORY
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.demo.machine import OTHER, simulated_machine

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
SIZE: ViewportSize = {"width": 1240, "height": 740}

_EVAL = """import tensorflow as tf
kept = [tf.zeros([256, 2048, 2048])]
with tf.device("GPU:1"):
    briefly = tf.zeros([64, 2048, 2048])
    del briefly
    few = tf.zeros([8, 1024, 1024])"""

_TRAIN = """import tensorflow as tf

images = tf.zeros([64, 2048, 2048])
with tf.device("GPU:1"):
    masks = tf.zeros([32, 2048, 2048])"""

_TRAINING = """import keras, tensorflow as tf

model = keras.Sequential([keras.Input((4096,)), *(keras.layers.Dense(4096) for _ in range(3))])
model.compile("adam", "mse")
model.fit(tf.zeros([64, 4096]), tf.zeros([64, 4096]), verbose=0)"""

_KEPT = """def scaled(images):
    return lambda factor: images * factor

batches = {"train": [tf.zeros([48, 1024, 1024])], "test": [tf.zeros([16, 1024, 1024])]}
scale = scaled(tf.zeros([32, 1024, 1024]))
tf.zeros([96, 1024, 1024])"""

_IMAGES = """import tensorflow as tf

images = tf.zeros([64, 1024, 1024])"""

_EPOCHS = """for epoch in range(3):
    for step in range(6):
        batch = images[:48] * 0.5
        time.sleep(0.4)
    del batch
    time.sleep(0.8)"""


def main() -> None:
    """Take them all."""
    os.environ |= {SIMULATED_USER: OTHER, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        _take_panel(browser)
        for name, cells in _CELLS.items():
            _take_last_cell(browser, name, cells)
        _take_track(browser)
        _take_unused(browser)
        browser.close()


def _take_panel(browser: Browser) -> None:
    with Machine.create("4x16GiB") as machine, _server(machine) as scene:
        machine.add_foreign("5GiB@1")
        scene.notebook("eval.ipynb", "%tf_gpu visible 0,1; growth", _EVAL)
        cells = ("%tf_gpu visible 0,2; limit 0=8GiB 2=4GiB", _TRAIN, "%tf_gpu top")
        page = _run_all(browser, scene, "train.ipynb", cells)
        open_panel(page)
        _leave_past(scene)
        page.evaluate(f"{STREAM}.reconnect()")  # which reads it
        table_of(page).root.scroll_into_view_if_needed()
        page.wait_for_timeout(8_000)  # until there is some history, and the notebooks are idle
        for theme in ("light", "dark"):
            page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", _THEMES[theme])
            page.evaluate("document.activeElement.blur()")  # a ring stands around what has the keyboard
            page.wait_for_timeout(2_000)  # until it is drawn
            page.screenshot(path=FOLDER / f"panel-{theme}.png")
        page.close()


_PAST = ((1, 5, 14, 9, 12), (5, 6, 9, 8, 6), (0, 0, 4, 2, 4), (0, 0, 0, 0, 0))
"""GiB that were used of each GPU, two minutes each."""


def _leave_past(scene: Scene) -> None:
    """Write a history of ten minutes into that of the collector that runs."""
    with board_of(scene.machine, scene.server.home / "board") as place:
        file = place.path / place.full_name(HISTORY)
    with file.open("a") as history:
        for second in range(600):
            pairs = zip(scene.machine.gpus(), _PAST, strict=True)
            points = {gpu.uuid: (past[second // 120] * GIB, 0) for gpu, past in pairs}
            history.write(f"\n{json.dumps({'time': time.time() - 600 + second, 'gpus': points})}")


_THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

_PLAIN = ".jp-cell-toolbar, .jp-Collapser { visibility: hidden }"
"""Hides what JupyterLab adds to the cell that is selected."""

_CELLS = {
    "status": (
        "%tf_gpu visible 0; limit 40%",
        _IMAGES,
        "%tf_gpu",
    ),
    "tensors": ("%tf_gpu visible 0; growth", _TRAINING, _KEPT, "%tf_gpu tensors"),
}
"""The cells before each picture of the last one's output, by the picture's name."""


def _take_last_cell(browser: Browser, name: str, cells: tuple[str, ...]) -> None:
    with simulated_machine() as machine, _server(machine) as scene:
        page = _run_all(browser, scene, "tour.ipynb", cells)
        _last(page).screenshot(path=FOLDER / f"{name}.png", style=_PLAIN)
        page.close()


_TRACKED = (
    "%tf_gpu visible 0; limit 2GiB",
    "%tf_gpu track on",
    "import time\n\nimport tensorflow as tf\n\nimages = tf.zeros([128, 1024, 1024]); time.sleep(2)",
    "weights = [tf.Variable(tf.zeros([16, 1024, 1024])) for _ in range(4)]; time.sleep(1)",
    _EPOCHS,
    "del images; time.sleep(2)",
    "%tf_gpu track",
)


def _take_track(browser: Browser) -> None:
    with simulated_machine() as machine, _server(machine) as scene:
        page = _run_all(browser, scene, "train.ipynb", _TRACKED)
        last = _last(page)
        last.locator(".tfgpu-slots > i").nth(9).hover()  # the values there are shown
        last.screenshot(path=FOLDER / "track.png", style=_PLAIN)
        page.close()


def _take_unused(browser: Browser) -> None:
    with Machine.create("2x16GiB") as machine, _server(machine) as scene:
        machine.set_sensors(0, celsius=61, watts=68)
        machine.set_sensors(1, celsius=34, watts=11)
        machine.add_foreign("5GiB@1")
        cells = {"eval.ipynb": ("growth", _EVAL), "train.ipynb": ("limit 0=8GiB 1=4GiB", _TRAIN)}
        eval_, train = (scene.notebook(path, f"%tf_gpu {policy}", cell) for path, (policy, cell) in cells.items())
        machine.use(train.pid, 93)
        machine.use(eval_.pid, 0)
        unused(scene, eval_)
        page = browser.new_page(viewport=SIZE, device_scale_factor=2)
        visit(page, scene, train.path)
        open_panel(page)
        page.locator(".Toastify__toast").wait_for(timeout=120_000)
        page.wait_for_timeout(8_000)  # until there is some history
        page.screenshot(path=FOLDER / "unused.png")
        page.close()


@contextmanager
def _server(machine: Machine) -> Iterator[Scene]:
    with scratch() as home, playing(machine, Path(home)) as scene:
        yield scene


def _run_all(browser: Browser, scene: Scene, path: str, cells: tuple[str, ...]) -> Page:
    """Make a notebook, open it in JupyterLab, and run its cells there."""
    scene.notebook(path, more=("%load_ext tfgpu_magic", *cells))
    page = browser.new_page(viewport=SIZE, device_scale_factor=2)
    visit(page, scene, path)
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
    _last(page).locator(".jp-OutputArea-output").first.wait_for(timeout=120_000)
    return page


def _last(page: Page) -> Locator:
    return page.locator(".jp-NotebookPanel:visible .jp-CodeCell").last


if __name__ == "__main__":
    main()
