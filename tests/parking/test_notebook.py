"""A notebook is parked, waits for room, comes back, is lost, goes on without its GPU, and ends: real TensorFlow."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tfgpu_magic.parking.states import Phase

from tests.jupyter import LEAN, Notebook, execute, reply_to
from tests.parking.conftest import phase, workers
from tests.parking.notebooks import AT_EXIT, ENDS, SIZE, Site, digest_in, heard, is_parked, park, runs_again
from tests.processes import kill
from tests.sizes import CONTEXT, GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.parking import reported
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


# --- it goes, and comes back ---


def test_a_model_is_as_it_was_after_another_notebook_had_the_gpu(site: Site, notebook: Notebook, digest: str) -> None:
    said = park(notebook)
    assert site.machine.held() == 0
    assert "Parked: " in said
    with site.holding("other.ipynb", 6 * GIB):
        assert site.machine.held() > 6 * GIB

    before = notebook.run("print(len(In))")
    assert digest_in(notebook.run("print(digest())")) == digest
    assert site.machine.held() == site.machine.held(pid=notebook.pid) == SIZE + CONTEXT
    assert int(notebook.run("print(len(In))")) == int(before.split()[-1]) + 2
    assert len(notebook.run("print(train())").split()[-1]) == 64


def test_a_cell_waits_for_room_and_says_for_whom(site: Site, notebook: Notebook, digest: str) -> None:
    park(notebook)
    with site.holding("eval.ipynb") as other:
        asked = notebook.client.execute("print(digest())")
        said = until(lambda: heard(notebook), lambda text: "Waiting for room" in text)
        assert "eval.ipynb holds 5.2 GiB" in said
        assert "come back, about" in said
        assert not site.holds(notebook)
        os.kill(notebook.pid, signal.SIGINT)
        answer = reply_to(notebook.client, asked)
        assert answer["status"] == "error"
        assert "still parked" in answer["evalue"]
        assert is_parked(notebook)
        heard(notebook)
        asked = notebook.client.execute("", user_expressions={"digest": "digest()"})
        until(lambda: heard(notebook), lambda text: "Waiting for room" in text)
        os.kill(notebook.pid, signal.SIGINT)
        assert reply_to(notebook.client, asked)["status"] == "error"
        assert is_parked(notebook)

        waiting = notebook.client.execute("print(digest())")
        until(lambda: heard(notebook), lambda text: "Waiting for room" in text)
        assert "Parked: " in execute(other.client, "%tf_gpu park")
        assert reply_to(notebook.client, waiting)["status"] == "ok"
    assert digest_in(notebook.run("print(digest())")) == digest


def test_who_interrupts_the_copying_gets_the_prompt_and_the_state(site: Site, notebook: Notebook, digest: str) -> None:
    park(notebook)
    site.machine.set_checkpoints(out=0.0, back=2.0 / (1 + SLACK))
    try:
        asked = notebook.client.execute("ran = True; print(digest())")
        said = until(lambda: heard(notebook), lambda text: "Bringing" in text)
        assert "Bringing 5.2 GiB of GPU memory back, about" in said
        os.kill(notebook.pid, signal.SIGINT)
        answer = reply_to(notebook.client, asked)
    finally:
        site.machine.set_checkpoints(out=0.0, back=0.0)

    assert answer["status"] == "error"
    assert "is back on the GPU meanwhile" in answer["evalue"]
    assert site.holds(notebook)
    assert notebook.run("print(digest(), 'ran' in globals())").split()[-2:] == [digest, "False"]


def test_a_worker_that_dies_while_a_cell_waits_is_replaced(site: Site, notebook: Notebook, digest: str) -> None:
    park(notebook)
    with site.holding("eval.ipynb"):
        asked = notebook.client.execute("print(digest())")
        until(lambda: heard(notebook), lambda text: "Waiting for room" in text)
        kill(*workers(site.machine))

    assert reply_to(notebook.client, asked)["status"] == "ok"  # the other one has ended, and its room is free
    assert digest_in(notebook.run("print(digest())")) == digest


def test_many_cycles_leave_nothing_behind(site: Site, notebook: Notebook, digest: str) -> None:
    count = (
        "import os, threading, time\n"
        "time.sleep(1)\n"  # one that has done its work may still be ending
        "names = sorted(one.name for one in threading.enumerate() if one.name != 'tfgpu_magic-watch')\n"
        "print(len(os.listdir('/proc/self/fd')), *names)"
    )
    for _ in range(2):
        park(notebook)
        notebook.run("pass")
    descriptors, *threads = notebook.run(count).split()
    for _ in range(10):
        park(notebook)
        assert digest_in(notebook.run("print(digest())")) == digest

    def left() -> bool:  # what is left behind is so each time
        now, *running = notebook.run(count).split()
        return int(now) >= int(descriptors) + 10 or bool(Counter(running) - Counter(threads))

    until(lambda: not left())


# --- it is lost ---


def test_a_lost_state_leaves_host_memory_to_be_saved(site: Site, trained: tuple[Notebook, str], tmp_path: Path) -> None:
    park(trained[0])
    with site.holding("lost.ipynb") as notebook:
        park(notebook)
        site.machine.hang("cuCheckpointProcessRestore", 4 + 4 * SLACK)
        asked = notebook.client.execute("ran = True")
        until(lambda: phase(notebook.pid) is Phase.RESTORING)
        taken = until(lambda: site.machine.add_neighbour("6GiB@0"), despite=SimulatorError)
        answer = reply_to(notebook.client, asked)
        site.machine.clear_faults()
        taken.stop()

        assert "cannot be had back" in answer["evalue"]
        assert "cannot be had back" in trained[0].run("%tf_gpu park lost.ipynb")
        saved = notebook.run(f"open({str(tmp_path / 'saved')!r}, 'w').write('saved'); print('ran' in globals())")
        assert "False" in saved  # stderr may be flushed amid a line of it
        assert (tmp_path / "saved").read_text() == "saved"
        assert "cannot be had back" in notebook.run("%tf_gpu park")
        assert "cannot be had back" in notebook.run("%tf_gpu park --check")
        assert notebook.run("print('lives')") == "lives\n"


# --- it is kept away, and goes on without ---


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


TROUBLES: dict[str, Callable[[Machine], AbstractContextManager[None]]]
TROUBLES = {"lost": lost, "hung": hung, "taken": taken, "unstartable": unstartable}


@pytest.fixture
def python(trained: tuple[Notebook, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The notebook's Python, which a test can delete."""
    path = trained[0].run("import sys; print(sys.executable)").split()[-1]
    (tmp_path / "python").symlink_to(path)
    monkeypatch.setenv("PARKED_PYTHON", str(tmp_path / "python"))
    trained[0].run(f"sys.executable = {str(tmp_path / 'python')!r}")
    trained[0].run(f"sys.path[:] = [one for one in sys.path if one != {str(LEAN)!r}]")  # so that there is pandas
    yield
    trained[0].run(f"sys.executable = {path!r}")


@pytest.mark.usefixtures("python")
@pytest.mark.parametrize("trouble", TROUBLES)
def test_whatever_keeps_the_state_away_what_is_in_host_memory_can_be_saved(
    site: Site, notebook: Notebook, digest: str, trouble: str, tmp_path: Path
) -> None:
    notebook.run("import tensorflow as tf; tensor = tf.ones(3) * 2")
    park(notebook)
    with TROUBLES[trouble](site.machine):
        asked = notebook.client.execute(SAVE.format(str(tmp_path / "early.csv")))
        if trouble in ("lost", "taken"):  # the others are said at once
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


def test_the_line_stands_in_a_cell_of_its_own_and_says_where_nothing_is_parked(notebook: Notebook, digest: str) -> None:
    assert "is not parked" in notebook.run(LINE)
    park(notebook)
    assert digest_in(notebook.run(f"print(digest())\n{LINE}")) == digest


# --- it ends ---


@pytest.mark.parametrize("end", ["restart", "shutdown", "SIGKILL"])
def test_it_ends_parked_and_leaves_nothing(site: Site, trained: tuple[Notebook, str], end: str, tmp_path: Path) -> None:
    park(trained[0])
    with site.holding("ends.ipynb") as notebook:
        path = tmp_path / "said"
        notebook.run(AT_EXIT.format(str(path)))
        park(notebook)
        ENDS[end](site, notebook)
        until(lambda: reported.parked(notebook.pid) is None)
        assert site.machine.held(pid=notebook.pid) == 0
        assert not path.exists()
        assert end != "restart" or runs_again(site, notebook)
    assert digest_in(trained[0].run("print(digest())")) == trained[1]
