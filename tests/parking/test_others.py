"""A notebook is parked by another one of the same user, and every view says so: real kernels, the real TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.jupyter import Notebook, reply_to
from tests.parking.notebooks import Site, digest_in
from tests.parking.test_kernel import BEGIN
from tests.waiting import until
from tfgpu_magic.parking import ask_kernel


@pytest.fixture(scope="module")
def trained(site: Site) -> Iterator[Notebook]:
    notebook = Notebook(site.server, "model.ipynb")
    notebook.run(BEGIN)
    yield notebook
    notebook.end()


@pytest.fixture(scope="module")
def other(site: Site) -> Iterator[Notebook]:
    notebook = Notebook(site.server, "other.ipynb")
    yield notebook
    notebook.end()


def test_a_kernel_parks_itself_when_it_is_asked(trained: Notebook) -> None:
    digest = digest_in(trained.run("print(digest())"))
    outcome = ask_kernel.park(trained.pid)
    again = ask_kernel.park(trained.pid)

    assert outcome.parked, outcome
    assert "in host memory; CUDA's context stays on the GPU." in outcome.lines[0]
    assert again == ask_kernel.Outcome(True, ["It is parked already."])
    assert digest_in(trained.run("print(digest())")) == digest


def test_a_kernel_in_a_cell_is_not_parked_nor_later(trained: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_kernel, "BEGIN_TIMEOUT", 0.1)
    asked = trained.client.execute("input()", allow_stdin=True)
    trained.client.get_stdin_msg(timeout=240)
    until(lambda: any(one.busy for one in ask_kernel.reports() if one.pid == trained.pid))
    outcome = ask_kernel.park(trained.pid)
    trained.client.input("")
    reply_to(trained.client, asked)
    monkeypatch.undo()

    assert outcome == ask_kernel.Outcome(False, [ask_kernel.BUSY])
    assert "Parked in" in ask_kernel.park(trained.pid).lines[0]


def test_what_is_no_kernel_is_not_asked(other: Notebook) -> None:
    child = int(other.run("import subprocess; child = subprocess.Popen(['sleep', '600']); print(child.pid)"))
    for pid in (os.getpid(), child, 1):
        assert ask_kernel.park(pid).lines == [f"Process {pid} is no kernel of a notebook of yours."]
    other.run("child.kill(); child.wait()")


def test_a_kernel_without_the_extension_says_what_to_do(other: Notebook) -> None:
    other.run("%unload_ext tfgpu_magic")
    outcome = ask_kernel.park(other.pid)
    other.run("%load_ext tfgpu_magic")

    assert outcome == ask_kernel.Outcome(False, [ask_kernel.UNLOADED])
