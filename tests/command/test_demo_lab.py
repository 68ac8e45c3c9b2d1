"""`tfgpu demo --lab`, by scripts/demo: it serves the notebooks, says on which machine, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.request
import webbrowser
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyterlab_server.workspaces_handler import WorkspacesManager

import tfgpu_magic
from tests.jupyter import free_port
from tests.waiting import until
from tfgpu_magic.command import demo
from tfgpu_magic.command.main import main
from tfgpu_magic.simgpu.demo import lab

ROOT = Path(__file__).parents[2]
THEMES = "@jupyterlab/apputils-extension:themes"


def _call(server: str, path: str, token: str, *, method: str = "GET", data: bytes | None = None) -> Any:
    request = urllib.request.Request(
        server + path, data=data, headers={"Authorization": f"token {token}"}, method=method
    )
    with urllib.request.urlopen(request, timeout=240) as answer:
        return json.loads(answer.read() or "null")


def test_the_address_is_said_when_it_can_be_opened_and_not_before(tmp_path: Path) -> None:
    """Jupyter Server writes where it will listen first, and listens when its loop runs."""
    code = """
        import json, pathlib, socket, sys, time
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        told = {"url": f"http://127.0.0.1:{port}/", "hostname": "127.0.0.1", "port": port, "token": "t"}
        pathlib.Path(sys.argv[1]).write_text(json.dumps(told))
        time.sleep(2)  # whoever takes the file for an answer is refused meanwhile
        listener.listen()
        time.sleep(600)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "info")]) as process:
        try:
            url = lab.address(process, tmp_path / "info")
            _, port = url.split("/")[2].split(":")
            socket.create_connection(("127.0.0.1", int(port)), timeout=240).close()
        finally:
            process.kill()

    assert url == f"http://127.0.0.1:{port}/lab/tree/tour.ipynb?token=t"


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="scripts/demo would make .venv: run scripts/test")
@pytest.mark.parametrize(
    ("end", "status"), [(signal.SIGINT, 0), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.nightly)]
)
def test_the_demo_serves_the_tour_and_is_gone_when_told(
    end: signal.Signals, status: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    port, own = free_port(), tmp_path_factory.mktemp("own")
    with subprocess.Popen(
        [ROOT / "scripts" / "demo", "--no-browser", "--port", str(port)],
        cwd=tmp_path,
        env={
            **os.environ,
            "TMPDIR": str(tmp_path),
            "JUPYTER_CONFIG_DIR": str(own),
            "NODE_DISABLE_COMPILE_CACHE": "1",  # scripts/demo may have to build the front end first
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as demo:
        assert demo.stdout
        try:
            line = demo.stdout.readline()
            url, _, _ = line[line.index("http") :].partition(" ")
            server, _, rest = url.partition("lab/tree/tour.ipynb?token=")
            contents = _call(server, "api/contents/tour.ipynb", rest)
            beside = _call(server, "api/contents/isolation.ipynb", rest)
            _call(server, "api/kernels", rest, method="POST", data=b"")
            _call(server, f"lab/api/settings/{THEMES}", rest, method="PUT", data=b'{"raw": "{}"}')
            started = psutil.Process(demo.pid).children(recursive=True)
        finally:
            demo.send_signal(end)
        _, errors = demo.communicate(timeout=240)

    real = len(tfgpu_magic.look().gpus)
    expected = f"this machine's GPUs ({real})" if real else "a SIMULATED machine of 4 GPUs, with two neighbours"
    assert line.startswith(f"The tour, on {expected}")
    assert f":{port}/" in server
    assert contents["content"]["cells"][0]["source"].startswith("# A tour of tfgpu_magic")
    assert beside["content"]["cells"][0]["source"].startswith("# Cells that give their GPU memory back")
    assert len(started) >= (2 if real else 4)  # JupyterLab and a kernel, and two neighbours
    assert psutil.wait_procs(started, timeout=240)[1] == []
    assert list(tmp_path.iterdir()) == []
    assert list(own.rglob("*.jupyterlab-settings")) == []  # the user's own JupyterLab looks as before
    assert demo.returncode == status
    assert "tfgpu_magic/command" not in errors  # a kernel that is interrupted at its start has a traceback


def test_a_browser_is_started_without_the_token_which_others_could_read(monkeypatch: pytest.MonkeyPatch) -> None:
    url, opened = "http://127.0.0.1:8888/lab/tree/tour.ipynb?token=secret", []
    process = subprocess.Popen(["true"])

    def browser(address: str) -> None:
        page = Path(address.removeprefix("file://"))
        opened.append((address, page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777, page.read_text()))

    monkeypatch.setattr(demo, "_machine", lambda *_, **__: nullcontext(("a machine", {})))
    monkeypatch.setattr(lab, "check", lambda: None)
    monkeypatch.setattr(lab, "touring", lambda *_: nullcontext((process, url)))
    monkeypatch.setattr(webbrowser, "open", browser)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["demo", "--lab"]) == 0
    [(address, page, folder, text)] = opened

    assert "secret" not in address
    assert (page, folder) == (0o600, 0o700)
    assert f'content="0; url={url}"' in text


def test_a_jupyterlab_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, deaf = tmp_path / "python", tmp_path / "deaf"
    python.write_text(f"#!/bin/sh\ntrap '' TERM\ntouch {deaf}\nexec sleep 3600")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(lab, "address", lambda *_: until(deaf.exists))
    monkeypatch.setattr(lab, "FAREWELL", 0.1)
    with lab.touring(tmp_path, os.environ, 0) as (process, _):
        pass

    assert process.returncode == -signal.SIGKILL


def test_jupyterlab_begins_with_the_panel(tmp_path: Path) -> None:
    """The file is called as JupyterLab calls it."""
    WorkspacesManager(str(tmp_path)).save("default", json.dumps({"data": {}, "metadata": {"id": "default"}}))

    assert [path.name for path in tmp_path.iterdir()] == [lab.WORKSPACE]


def test_without_what_it_needs_the_tour_says_what_to_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab, "find_spec", lambda name: None if name == "jupyterlab" else name)

    assert main(["demo", "--lab"]) == 2
    assert capsys.readouterr().err == ("tfgpu: the tour needs jupyterlab. Install that: pip install jupyterlab\n")
