"""What the browser's tests look at: a server with two notebooks that use GPUs through TensorFlow, and a page of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, Page, Playwright

from scripts._frontend import ROOT
from tests import waiting
from tests.jupyter import LEAN, Notebook, Server, execute, until
from tests.sizes import MIB
from tfgpu_magic.simgpu import Machine

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
TAKE = "import tensorflow as tf; kept = tf.zeros(256 * 2**20 // 4)"
"""A cell after which only a restart changes what TensorFlow may take."""
ASKED = "from tfgpu_magic.engine import engine; print(engine.current().asked)"
HOLD = f"from tests.simgpu.on_machine import allocate; allocate({256 * MIB})"
"""A cell that holds memory as any program does that is not TensorFlow: imported in a moment."""

in_notebook_7 = pytest.mark.parametrize("scene", ["jupyterlab", "notebook"], indirect=True)
"""For what Notebook 7 has code of its own for. All else is tried in JupyterLab alone, where it is the same code."""
nightly_in_notebook_7 = pytest.mark.parametrize(
    "scene", ["jupyterlab", pytest.param("notebook", marks=pytest.mark.nightly)], indirect=True
)
"""For a few tests that see that the same code runs there too."""

DISABLED = (
    "@jupyterlab/apputils-extension:announcements",  # it would ask whether to fetch news, in front of all else
    *(
        f"@jupyterlab/{name}-extension"
        for name in ("debugger", "extensionmanager", "lsp", "mermaid", "pdf", "vega5")  # which no test needs
    ),
)


def program() -> str:
    """Return the machine's own Chromium; scripts/test installs it where it may."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, "these tests need a Chromium. Debian: apt install chromium"
    return found


def chromium(playwright: Playwright) -> Browser:
    """Start the machine's own Chromium."""
    return playwright.chromium.launch(executable_path=program(), args=ARGUMENTS)


class Scene:
    """A server on a machine, and what is done there."""

    def __init__(self, machine: Machine, server: Server, application: str = "jupyterlab") -> None:
        self.machine = machine
        self.server = server
        self.application = application

    def notebook(self, path: str, *cells: str, more: tuple[str, ...] = ()) -> Notebook:
        """Make a notebook with a kernel, and run cells in that after one that loads the extension; not `more`."""
        both = [nbformat.v4.new_code_cell(cell) for cell in (*cells, *more)]  # type: ignore[no-untyped-call]
        made = nbformat.v4.new_notebook(cells=both)  # type: ignore[no-untyped-call]
        (self.server.home / path).parent.mkdir(exist_ok=True)
        self.server.call(f"contents/{path}", {"type": "notebook", "content": made}, method="PUT")
        notebook = Notebook(self.server, path)
        for source in ("%load_ext tfgpu_magic", *cells):
            notebook.run(source)
        return notebook

    def forget_pages(self) -> None:
        """Have the next page show no notebook and no panel that an earlier one had."""
        shutil.rmtree(self.server.home / ".jupyter" / "workspaces", ignore_errors=True)

    def held(self, notebook: Notebook, gpu: int = 0) -> int:
        """Return the driver's figure of what a notebook holds."""
        return self.machine.held(pid=notebook.pid, gpu=gpu)

    def policy(self, notebook: Notebook) -> str:
        """Return the policy of a notebook whose kernel was restarted."""
        client = self.server.connect(notebook.kernel)
        asked = execute(client, ASKED)
        client.stop_channels()
        return asked.splitlines()[-1]


@contextmanager
def playing(machine: Machine, home: Path, **options: Any) -> Iterator[Scene]:
    """Have a scene; at its end the server and its kernels are gone."""
    config = home / ".jupyter"
    (config / "labconfig").mkdir(parents=True)
    # For the check of the build the server would run Node.js when a page is loaded.
    page = {"disabledExtensions": dict.fromkeys(DISABLED, True), "buildCheck": False}
    (config / "labconfig" / "page_config.json").write_text(json.dumps(page))
    environment = {
        "JUPYTER_CONFIG_PATH": str(config),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "TFGPU_MAGIC_DIR": str(home / "board"),
        "PYTHONPATH": f"{ROOT}:{LEAN}",  # a kernel finds the tests, which hold memory for it
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "JUPYTERLAB_SETTINGS_DIR": str(config / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(config / "workspaces"),
        **options.pop("environment", {}),
    }
    exposed = (f"--{application}.expose_app_in_browser=True" for application in ("LabApp", "JupyterNotebookApp"))
    options["options"] = (*exposed, *options.get("options", ()))
    server = Server(machine, home, application="jupyterlab", environment=environment, **options)
    try:
        until(lambda: server.call("status"))
        yield Scene(machine, server)
    finally:
        server.stop()


def soon(promise: Callable[[], Any], seconds: float = 15) -> Any:
    """Wait until the page is so, and return what `promise` gives; an assertion that fails is tried again."""
    return waiting.until(promise, seconds=seconds, every=0.1, despite=AssertionError)


def shot(page: Page, name: str) -> None:
    """Keep a screenshot where $TFGPU_SHOTS says, for eyes."""
    if folder := os.environ.get("TFGPU_SHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", animations="disabled")  # what comes in from the side is there
