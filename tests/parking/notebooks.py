"""Notebooks on a simulated machine whose parking is tried: some train the real TensorFlow, others just hold memory."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from tfgpu_magic.parking.states import Phase

from scripts import _notebooks
from tests.jupyter import Notebook, Server, configure, execute, reply_to
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic.parking import reported
from tfgpu_magic.simgpu import Machine

SIZE = 5 * GIB  # what a notebook holds of a GPU of 8 GiB, beside its context: two find no room

TRAIN = """
%tf_gpu limit {size}
from tests.simgpu.checkpoint_on_machine import digest, train
_ = train()
print(digest())
"""

AT_EXIT = "import atexit, pathlib; atexit.register(lambda: pathlib.Path({!r}).write_text(str(intact())))"

HOLD = "from tests.simgpu.checkpoint_on_machine import hold, intact; at = hold({size})"

PATIENT = f"""\
{_notebooks.PATIENT}
def _wait():
    from tfgpu_magic.parking import ask_kernel
    from tfgpu_magic.parking.inside import notebook
    ask_kernel.BEGIN_TIMEOUT = notebook.QUIET_TIMEOUT = notebook.CALL_OFF_TIMEOUT = 60.0
_wait()
del _wait
"""
"""What a kernel runs that waits as long as a busy machine takes."""


@dataclass(frozen=True, slots=True)
class Site:
    machine: Machine
    server: Server

    @contextmanager
    def notebook(self, path: str) -> Iterator[Notebook]:
        """Open a notebook, and shut it down in the end."""
        notebook = Notebook(self.server, path)
        try:
            yield notebook
        finally:
            notebook.client.stop_channels()
            with contextlib.suppress(HTTPError):  # a test may have ended it
                self.server.delete(f"api/sessions/{notebook.session}")
            until(lambda: self.machine.held(pid=notebook.pid) == 0)

    @contextmanager
    def trained(self, path: str, size: str = "5GiB") -> Iterator[tuple[Notebook, str]]:
        """Open a notebook that has trained a model, and give the digest of the model, too."""
        with self.notebook(path) as notebook:
            yield notebook, digest_in(notebook.run(TRAIN.format(size=size)))

    @contextmanager
    def holding(self, path: str, size: int = SIZE) -> Iterator[Notebook]:
        """Open a notebook that holds memory without a framework; `intact()` there tells whether all is as it was."""
        with self.notebook(path) as notebook:
            notebook.run(HOLD.format(size=size))
            yield notebook

    def holds(self, notebook: Notebook) -> bool:
        return self.machine.held(pid=notebook.pid) >= SIZE + CONTEXT


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


def home(folder: Path, **settings: Any) -> Path:
    """Make a home whose kernels let themselves be parked."""
    configure(folder, **{"parking": "ask", **settings})
    startup = folder / ".ipython/profile_default/startup"
    startup.mkdir()
    (startup / "patient.py").write_text(PATIENT)
    return folder


ENDS: dict[str, Callable[[Site, Notebook], object]] = {
    "restart": lambda site, notebook: site.server.call(f"kernels/{notebook.kernel}/restart", method="POST"),
    "shutdown": lambda site, notebook: site.server.delete(f"api/kernels/{notebook.kernel}"),
    "exit": lambda _, notebook: notebook.client.execute("exit()"),
    "SIGTERM": lambda _, notebook: os.kill(notebook.pid, signal.SIGTERM),
    "SIGKILL": lambda _, notebook: os.kill(notebook.pid, signal.SIGKILL),
    "server lost": lambda site, _: site.server.process.kill(),
}
"""Ways in which a notebook ends."""


def runs_again(site: Site, notebook: Notebook) -> bool:
    again = site.server.connect(notebook.kernel)
    try:
        return "anew" in execute(again, "print('anew')")
    finally:
        again.stop_channels()


def is_parked(notebook: Notebook) -> bool:
    entry = reported.parked(notebook.pid)
    return entry is not None and entry.phase is Phase.PARKED


def park(notebook: Notebook) -> str:
    """Park a notebook by its own line, and return what was said."""
    said = notebook.run("%tf_gpu park")
    assert is_parked(notebook), said
    return said


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
        texts.append(str(content.get("text") or content.get("data", {}).get("text/plain", "")))
    return " ".join(texts)
