"""Whatever keeps its GPU state away, a notebook can go on without: real kernels with the real TensorFlow."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.jupyter import Notebook, reply_to
from tests.parking.conftest import workers
from tests.parking.notebooks import SIZE, Site, digest_in, heard, is_parked, park
from tests.processes import kill
from tests.sizes import CONTEXT
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

LINE = "%tf_gpu unpark --without-gpu"
SAVE = "import pandas; pandas.DataFrame({{'a': [1, 2]}}).to_csv({!r}); print('saved')"
REFUSED = "it goes on without: `%tf_gpu unpark` tries to bring it back"

USED = ("tensor + 1", "tensor.numpy()", "tf.zeros(3)", "digest()", "train()", "tf.function(tf.identity)(tensor)")
"""What uses the GPU."""

ARRAY = """
import numpy, pathlib
class Array(numpy.ndarray): device = pathlib.PurePath({!r})
with tf.device("CPU:0"): print(tf.raw_ops.Neg(x=numpy.ones(1).view(Array)).numpy())
"""
"""An array of another library, whose device is no text."""


@contextmanager
def lost(machine: Machine) -> Iterator[None]:
    """The GPU has fallen off the bus."""
    machine.lose(0)
    yield
    machine.restore(0)


@contextmanager
def hung(machine: Machine) -> Iterator[None]:
    """The driver does not answer what it is asked about a process."""
    machine.hang("cuCheckpointProcessGetState", 3600)
    yield
    machine.clear_faults()


@contextmanager
def taken(machine: Machine) -> Iterator[None]:
    """A stranger has the room."""
    neighbour = machine.add_neighbour("6GiB@0")
    yield
    neighbour.stop()


@contextmanager
def unstartable(machine: Machine) -> Iterator[None]:
    """No helper process can be started, since the environment was deleted."""
    python = Path(os.environ["PARKED_PYTHON"])
    target = python.readlink()
    python.unlink()
    kill(*workers(machine))
    yield
    python.symlink_to(target)


@pytest.fixture
def python(trained: tuple[Notebook, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The notebook's Python, which a test can delete."""
    path = trained[0].run("import sys; print(sys.executable)").split()[-1]
    (tmp_path / "python").symlink_to(path)
    monkeypatch.setenv("PARKED_PYTHON", str(tmp_path / "python"))
    trained[0].run(f"sys.executable = {str(tmp_path / 'python')!r}")
    yield
    trained[0].run(f"sys.executable = {path!r}")


@pytest.mark.usefixtures("python")
@pytest.mark.parametrize("trouble", [lost, hung, taken, unstartable])
def test_whatever_keeps_the_state_away_what_is_in_host_memory_can_be_saved(
    site: Site,
    trained: tuple[Notebook, str],
    trouble: Callable[[Machine], AbstractContextManager[None]],
    tmp_path: Path,
) -> None:
    notebook, digest = trained
    notebook.run("import tensorflow as tf; tensor = tf.ones(3) * 2")
    park(notebook)
    with trouble(site.machine):
        asked = notebook.client.execute(SAVE.format(str(tmp_path / "early.csv")))
        if trouble in (lost, taken):  # the others are said at once
            until(lambda: heard(notebook), lambda text: f"interrupt, and run `{LINE}`" in text)
            os.kill(notebook.pid, signal.SIGINT)
        answer = reply_to(notebook.client, asked)
        assert answer["evalue"].startswith("The cell was not run. ")
        assert f"run `{LINE}`" in answer["evalue"]

        assert "goes on without the GPU" in notebook.run(LINE)
        assert "saved" in notebook.run(SAVE.format(str(tmp_path / "saved.csv")))
        assert (tmp_path / "saved.csv").read_text() == ",a\n0,1\n1,2\n"
        assert not (tmp_path / "early.csv").exists()

        for used in (*USED, ARRAY.format("cuda:0")):
            assert REFUSED in notebook.run(used), used
        on_host = "with tf.device('CPU:0'): print(float(tf.reduce_sum(tf.constant([1., 2.]))))"
        assert "3.0" in notebook.run(on_host)
        assert "[-1.]" in notebook.run(ARRAY.format("cpu"))
        assert "goes on without its GPU memory" in notebook.run("%tf_gpu park")
    assert is_parked(notebook)

    assert "is back on the GPU" in notebook.run("%tf_gpu unpark")
    assert site.machine.held(pid=notebook.pid) == SIZE + CONTEXT
    assert digest_in(notebook.run("print(digest(), tensor.numpy())")) == digest
    park(notebook)
    assert digest_in(notebook.run("print(digest())")) == digest


def test_the_line_stands_in_a_cell_of_its_own_and_says_where_nothing_is_parked(trained: tuple[Notebook, str]) -> None:
    notebook, digest = trained

    assert "is not parked" in notebook.run(LINE)
    park(notebook)
    assert digest_in(notebook.run(f"print(digest())\n{LINE}")) == digest
