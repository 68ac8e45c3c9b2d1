"""Notebooks in real kernels on a simulated machine whose arrays are parked by the mechanism of `shelf`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from scripts import _notebooks
from tests.jupyter import Notebook, Server, configure, reply_to
from tests.parking.shelf import AWAY, NO_ROOM, WAITS
from tfgpu_magic.simgpu import Machine

PATIENT = f"""\
{_notebooks.PATIENT}
def _wait():
    from tfgpu_magic.parking.inside import process
    process.CALL_OFF_TIMEOUT = 60.0
_wait()
del _wait
"""
"""What a kernel runs that waits as long as a busy machine takes."""

SHELF = "from tests.parking.shelf import Shelf; shelf = Shelf({!r}); digest = shelf.digest"


class Parkable(Notebook):
    """A notebook whose arrays can be parked.

    Args:
        server: its server.
        path: that of the notebook.
        folder: where files show what happens.
    """

    def __init__(self, server: Server, path: str, folder: Path) -> None:
        super().__init__(server, path)
        self._folder = folder
        self.run(SHELF.format(str(folder)))

    def is_parked(self) -> bool:
        return (self._folder / AWAY).exists()

    def park(self) -> None:
        """Park it by a line of its own."""
        said = self.run("shelf.park()")
        assert self.is_parked(), said

    @contextmanager
    def without_room(self) -> Iterator[None]:
        """Have its arrays stay away in a block."""
        (self._folder / NO_ROOM).touch()
        try:
            yield
        finally:
            (self._folder / NO_ROOM).unlink()
            (self._folder / WAITS).unlink(missing_ok=True)

    def waits(self) -> bool:
        """Tell whether somebody waits for the arrays."""
        return (self._folder / WAITS).exists()


@dataclass(frozen=True, slots=True)
class Site:
    machine: Machine
    server: Server

    @contextmanager
    def parkable(self, path: str, folder: Path) -> Iterator[Parkable]:
        """Open a notebook, and shut it down in the end."""
        notebook = Parkable(self.server, path, folder)
        try:
            yield notebook
        finally:
            notebook.client.stop_channels()
            with contextlib.suppress(HTTPError):
                self.server.delete(f"api/sessions/{notebook.session}")


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
