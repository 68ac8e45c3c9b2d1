"""Real kernels on a simulated machine, what pages send them, and what they show.

Kernels compute nothing there. So every variable is filled with random bytes of its own from the host, and a digest of
all of them is taken before and after.
"""

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
from tests.sizes import LITTLE
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


PARK = "%tf_gpu park"
BEGIN = """
%tf_gpu growth --release
import hashlib
import numpy as np, tensorflow as tf
from tests.parking.variables import content, fill
def digest():
    return hashlib.sha256(b"".join(one for _, one in sorted(content().items()))).hexdigest()
"""
MODEL = f"""
{BEGIN}
model = tf.keras.Sequential([tf.keras.Input((512,)), tf.keras.layers.Dense(2048), tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(np.zeros((64, 512), "float32"), np.zeros(64, "float32"), epochs=2)
table = tf.Variable(tf.zeros(16 * 2**20))
step = tf.function(lambda: table.read_value())
step()
fill()
"""
"""A notebook that has trained a model, and has a variable of 64 MiB."""

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


class Parkable(Notebook):
    """A notebook that has variables on a GPU, and can print the digest of all of them.

    Attributes:
        digest: that of its variables as they are when nothing has changed them.
    """

    def __init__(self, site: Site, path: str, begin: str) -> None:
        super().__init__(site.server, path)
        self.machine = site.machine
        self.digest = self.finds(begin)

    def finds(self, code: str = "") -> str:
        """Return the digest of what a cell finds, after some code."""
        said = self.run(f"{code}\nprint(digest())")
        found = re.search(r"\b[0-9a-f]{64}\b", said)
        assert found is not None, said
        return found[0]

    def held(self) -> int:
        """Return what it holds of the GPU."""
        return self.machine.held(pid=self.pid)

    def park(self) -> int:
        """Park it, and return what it holds then."""
        said = self.run(PARK)
        stays = r"(\d+ [BK]\w* and )?CUDA's context stays? on the GPU\."  # Keras keeps tensors of its own
        assert re.search(rf"Parked in [\d.]+ s: \d+ MiB in host memory; {stays}", said), said
        assert self.held() in LITTLE
        return self.held()


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
