"""JupyterLab on copies of the notebooks, with the panel open, in a folder of its own: no setting is the user's."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tfgpu_magic.errors import TfGpuError

TOUR = Path(__file__).with_name("tour.ipynb")
"""What is opened; in a clone a link to where all notebooks are."""

PATIENCE = 300.0
"""Seconds in which JupyterLab must listen."""

PROGRESS_INTERVAL = 8.0  # seconds after which it is said again that JupyterLab starts

FAREWELL = 30.0
"""Seconds in which JupyterLab ends its kernels and itself; those that a killed one leaves notice it, and end."""

WORKSPACE = "default-37a8.jupyterlab-workspace"
"""The file of JupyterLab's workspace `default`."""

_PANEL = "tfgpu-magic-panel"
_NEEDED = ("jupyterlab", "ipykernel", "tensorflow")


def check() -> None:
    """Return whether the tour can be shown.

    Raises:
        TfGpuError: a package that it needs is not installed here.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise TfGpuError(f"the tour needs {' and '.join(missing)}. Install that: pip install {' '.join(missing)}")


@contextmanager
def touring(folder: Path, environment: Mapping[str, str], port: int) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run JupyterLab on the notebooks; give its process and the tour's address. At the end it and its kernels are gone.

    Args:
        folder: for copies of the notebooks and all that JupyterLab writes.
        environment: the variables of JupyterLab and its kernels.
        port: where it listens, or on the next free one.

    Raises:
        TfGpuError: it ends before it listens.
    """
    _copy_notebooks(folder)
    home = folder / ".jupyter"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}"]
    command += ["--ServerApp.log_level=ERROR", "--LabApp.log_level=ERROR"]
    command += [f"--ServerApp.root_dir={folder}", f"--LabApp.workspaces_dir={home / 'workspaces'}"]
    command += [f"--LabApp.user_settings_dir={home / 'settings'}"]  # the user's own stay as they are
    command += ["--allow-root"] if os.geteuid() == 0 else []
    _open_panel(home)
    ours = {
        "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, [str(home), environment.get("JUPYTER_CONFIG_PATH")])),
        "JUPYTER_TOKEN": secrets.token_hex(16),  # not on the command line, where others could read it
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
    }
    # A session of its own: a terminal's Ctrl-C would make it ask whether that was meant.
    lab = subprocess.Popen(command, env={**environment, **ours}, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield lab, address(lab, home / "runtime" / f"jpserver-{lab.pid}.json")
    finally:
        lab.terminate()
        try:
            lab.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            lab.kill()
            lab.wait()


def _copy_notebooks(folder: Path) -> None:
    """Put copies, whose changes are not the originals', into a folder, without outputs: they were not made here."""
    for path in TOUR.resolve().parent.glob("*.ipynb"):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"], cell["execution_count"] = [], None
        (folder / path.name).write_text(json.dumps(notebook), encoding="utf-8")


def _open_panel(home: Path) -> None:
    """Write a workspace in which the panel is open, for JupyterLab to begin with."""
    left = {"collapsed": False, "visible": True, "current": _PANEL, "widgets": [_PANEL]}
    layout = {"left": left, "relativeSizes": [0.24, 0.76, 0]}
    # The first start would ask whether to fetch Jupyter's news, in front of the tour.
    quiet = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    for name, written in (
        (f"workspaces/{WORKSPACE}", {"data": {"layout-restorer:data": layout}, "metadata": {"id": "default"}}),
        ("labconfig/page_config.json", quiet),
    ):
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text(json.dumps(written))


def address(lab: subprocess.Popen[bytes], info: Path) -> str:
    """Return the tour's address with the token once JupyterLab listens, which it does after it has written where.

    Args:
        lab: the process.
        info: the file where Jupyter Server writes it.

    Raises:
        TfGpuError: it ends before, or nothing listens in time.
    """
    began = said = time.monotonic()
    while time.monotonic() < began + PATIENCE and lab.poll() is None:
        if time.monotonic() > said + PROGRESS_INTERVAL:
            said = time.monotonic()
            print(f"Starting JupyterLab: {said - began:.0f} s so far", file=sys.stderr, flush=True)
        try:
            server = json.loads(info.read_text())
            socket.create_connection((server["hostname"], server["port"]), timeout=1).close()
        except (OSError, ValueError):  # not there yet, half written, or not listening
            time.sleep(0.05)
        else:
            return f"{server['url']}lab/tree/{TOUR.name}?token={server['token']}"
    raise TfGpuError("JupyterLab did not start; what it says is above.")
