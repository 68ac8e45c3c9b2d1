"""Real kernels on a simulated machine, what pages send them, and what they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from scripts import _notebooks
from tests.jupyter import Notebook, Server, configure, reply_to
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

PATIENT = f"""\
{_notebooks.PATIENT}
def _wait():
    from tfgpu_magic.parking.kernel import process
    process.CALL_OFF_TIMEOUT = 60.0
_wait()
del _wait
"""
"""What a kernel runs that waits as long as a busy machine takes."""


SLOW = """
from pathlib import Path
from unittest import mock
from tests.waiting import until
from tfgpu_magic.parking.frameworks.tensorflow import Variable
copied = Variable.copied
def slowly(one):
    if one.size < {1}:
        Path({0!r}, "begun").touch()
        until(Path({0!r}, "go").exists)
    return copied(one)
slow = mock.patch.object(Variable, "copied", slowly)
slow.start()
"""
"""Has the copy of a variable of fewer bytes wait for a file in a folder."""


@dataclass(frozen=True, slots=True)
class Site:
    machine: Machine
    server: Server


@contextmanager
def seen(gpus: str, folder: Path) -> Iterator[Machine]:
    """Give a machine with a board of its own, which this process sees, too."""
    with pytest.MonkeyPatch.context() as patch, Machine.create(gpus) as machine:
        patch.setenv("TFGPU_MAGIC_DIR", str(folder / "board"))
        for name, value in machine.environ().items():
            patch.setenv(name, value)
        yield machine


def digest_in(said: str) -> str:
    """Return the digest that a cell has printed."""
    found = re.search(r"\b[0-9a-f]{64}\b", said)
    assert found is not None, said
    return found[0]


def home(folder: Path) -> Path:
    """Make a home whose kernels have the extension, and are patient."""
    configure(folder)
    startup = folder / ".ipython/profile_default/startup"
    startup.mkdir()
    (startup / "patient.py").write_text(PATIENT)
    return folder


def send(
    notebook: Notebook,
    kind: str,
    content: dict[str, Any],
    *,
    channel: str = "shell",
    metadata: Any = None,
    **header: Any,
) -> str:
    """Send a message as a page does, and return its id."""
    message = notebook.client.session.msg(kind, content, metadata=metadata)
    message["header"].update(header)
    getattr(notebook.client, f"{channel}_channel").send(message)
    return str(message["header"]["msg_id"])


def ask(notebook: Notebook, kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """Send a request on the shell channel, and return the content of its reply."""
    return reply_to(notebook.client, send(notebook, kind, content))


def heard(notebook: Notebook) -> str:
    """Return what the page is shown now."""
    texts = []
    while notebook.client.iopub_channel.msg_ready():
        content = notebook.client.get_iopub_msg(timeout=1)["content"]
        said = content.get("text") or content.get("evalue") or content.get("data", {}).get("text/plain", "")
        texts.append(str(said))
    return " ".join(texts)


def answered(notebook: Notebook, asked: str) -> dict[str, Any]:
    """Return the answer on the control channel to a message."""
    get = notebook.client.get_control_msg
    return until(lambda: get(timeout=30 * SLACK), lambda one: one["parent_header"]["msg_id"] == asked)


def button(notebook: Notebook, does: str) -> str:
    """Make a button that does something, and return its number."""
    return notebook.run(
        "import ipywidgets\n"
        "seen, button = [], ipywidgets.Button()\n"
        f"button.on_click(lambda _: {does})\n"
        "print(button.comm.comm_id)"
    ).split()[-1]


def send_custom(notebook: Notebook, number: str, **content: str) -> None:
    send(notebook, "comm_msg", {"comm_id": number, "data": {"method": "custom", "content": content}})


def ask_for_widgets(notebook: Notebook) -> None:
    """Ask for the state of every widget as JupyterLab's page does when it is opened, and wait for what comes of it."""
    asking = {"comm_id": uuid4().hex}
    opening = {**asking, "target_name": "jupyter.widget.control", "data": {}}
    for kind, content in (
        ("comm_open", opening),
        ("comm_msg", {**asking, "data": {"method": "request_states"}}),
        ("comm_close", {**asking, "data": {}}),
    ):
        send(notebook, kind, content, metadata={"version": "1.0.0"})
    assert ask(notebook, "kernel_info_request", {})["status"] == "ok"  # those before it have been heard
