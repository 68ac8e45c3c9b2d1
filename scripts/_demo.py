"""Opens JupyterLab on copies of the notebooks, with the panel: on the GPUs that NVML finds, else on simulated ones."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from jupyterlab_server.workspaces_handler import WorkspacesManager

import tfgpu_magic
from scripts._scratch import scratch
from tfgpu_magic.demo.machine import simulated

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
TOUR = "tour.ipynb"
"""The one that is opened."""

PATIENCE = 120.0
"""Seconds in which JupyterLab must listen."""


def main() -> int:
    """Run until JupyterLab ends, or a signal ends it and us."""
    parser = argparse.ArgumentParser("scripts/demo", description=__doc__)
    parser.add_argument("--port", type=int, default=8888, metavar="N", help="where to listen; 8888, or the next free")
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        with _machine() as (what, environment), scratch() as folder:
            _copy_notebooks(Path(folder))
            with _lab(Path(folder), options.port, environment) as lab:
                url = _url(lab, Path(folder))
                print(f"The tour, on {what}: {url}   (Ctrl-C ends it)", flush=True)
                if not options.no_browser:
                    webbrowser.open(url)
                return lab.wait()
    except KeyboardInterrupt:
        print("Ended, with all that was started.", file=sys.stderr)
        return 0


def _end(*_: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the way out is not to be interrupted
    raise KeyboardInterrupt


@contextmanager
def _machine() -> Iterator[tuple[str, dict[str, str]]]:
    """Say what the tour will run on, and give the environment of programs there."""
    here = tfgpu_magic.look()
    if here.gpus:
        yield f"this machine's GPUs ({len(here.gpus)})", dict(os.environ)
        return
    with simulated(moving=True) as machine:
        yield (
            f"a SIMULATED machine of {len(machine.gpus())} GPUs with two neighbours, because NVML finds none here",
            machine.environ(),
        )


def _copy_notebooks(folder: Path) -> None:
    """Put copies, whose changes are not the repository's, into a folder, without outputs: they were not made here."""
    for path in NOTEBOOKS.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # nbformat's
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, folder / path.name)  # type: ignore[no-untyped-call]  # nbformat's


@contextmanager
def _lab(folder: Path, port: int, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run JupyterLab in the folder; at the end it and its kernels are gone."""
    home = folder / ".jupyter"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}"]
    command += ["--ServerApp.log_level=ERROR", "--LabApp.log_level=ERROR"]
    command += [f"--ServerApp.root_dir={folder}", f"--LabApp.workspaces_dir={home / 'workspaces'}"]
    command += [f"--LabApp.user_settings_dir={home / 'settings'}"]  # the user's own stay as they are
    command += ["--allow-root"] if os.geteuid() == 0 else []
    # The first start would ask whether to fetch Jupyter's news, in front of the tour.
    page = home / "labconfig" / "page_config.json"
    page.parent.mkdir(parents=True)
    page.write_text(json.dumps({"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}))
    _open_panel(home / "workspaces")
    environment |= {
        "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, [str(home), environment.get("JUPYTER_CONFIG_PATH")])),
        "JUPYTER_TOKEN": secrets.token_hex(16),  # not on the command line, where others could read it
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
    }
    # A session of its own: a terminal's Ctrl-C would make it ask whether that was meant.
    lab = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield lab
    finally:
        lab.terminate()
        lab.wait()


def _open_panel(workspaces: Path) -> None:
    """Let JupyterLab begin as one who has opened the panel left it."""
    left = {"collapsed": False, "visible": True, "current": "tfgpu-magic-panel", "widgets": ["tfgpu-magic-panel"]}
    layout = {"left": left, "relativeSizes": [0.24, 0.76, 0]}
    workspace = {"data": {"layout-restorer:data": layout}, "metadata": {"id": "default"}}
    WorkspacesManager(str(workspaces)).save("default", json.dumps(workspace))


def _url(lab: subprocess.Popen[bytes], folder: Path) -> str:
    """Return the tour's address with the token once JupyterLab listens, which it does after it has written where."""
    info = folder / ".jupyter" / "runtime" / f"jpserver-{lab.pid}.json"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and lab.poll() is None:
        try:
            server = json.loads(info.read_text())
            socket.create_connection((server["hostname"], server["port"]), timeout=1).close()
        except (OSError, ValueError):  # not there yet, half written, or not listening
            time.sleep(0.05)
        else:
            return f"{server['url']}lab/tree/{TOUR}?token={server['token']}"
    raise SystemExit("JupyterLab did not start; what it says is above.")


if __name__ == "__main__":
    sys.exit(main())
