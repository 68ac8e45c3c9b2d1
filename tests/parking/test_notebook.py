"""A notebook is parked, waits for room, comes back, is lost and ends: real kernels with the real TensorFlow."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.jupyter import Notebook, execute, reply_to
from tests.parking.conftest import phase, workers
from tests.parking.notebooks import SIZE, Site, digest_in, heard, is_parked, park
from tests.processes import kill
from tests.sizes import CONTEXT, GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.parking import reported
from tfgpu_magic.parking.states import Phase

# --- it goes, and comes back ---


def test_a_model_is_as_it_was_after_another_notebook_has_had_the_gpu(site: Site, trained: tuple[Notebook, str]) -> None:
    notebook, digest = trained
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


def test_a_cell_waits_for_room_and_says_for_whom(site: Site, trained: tuple[Notebook, str]) -> None:
    notebook, digest = trained
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


def test_who_interrupts_the_copying_gets_the_prompt_back_and_the_state_is_there(
    site: Site, trained: tuple[Notebook, str]
) -> None:
    notebook, digest = trained
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


def test_a_worker_that_dies_while_a_cell_waits_is_replaced(site: Site, trained: tuple[Notebook, str]) -> None:
    notebook, digest = trained
    park(notebook)
    with site.holding("eval.ipynb"):
        asked = notebook.client.execute("print(digest())")
        until(lambda: heard(notebook), lambda text: "Waiting for room" in text)
        kill(*workers(site.machine))

    assert reply_to(notebook.client, asked)["status"] == "ok"  # the other one has ended, and its room is free
    assert digest_in(notebook.run("print(digest())")) == digest


def test_many_cycles_leave_nothing_behind(site: Site, trained: tuple[Notebook, str]) -> None:
    notebook, digest = trained
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

    descriptors_after, *threads_after = notebook.run(count).split()
    assert int(descriptors_after) < int(descriptors) + 10  # what is left behind is so each time
    assert threads_after == threads


# --- it is lost ---


def test_what_is_in_host_memory_can_be_saved_when_the_state_is_lost(
    site: Site, trained: tuple[Notebook, str], tmp_path: Path
) -> None:
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


# --- it ends ---


@pytest.mark.parametrize("end", ["restart", "shutdown", "death"])
def test_a_parked_notebook_ends_parked_and_leaves_nothing(
    site: Site, trained: tuple[Notebook, str], end: str, tmp_path: Path
) -> None:
    park(trained[0])
    with site.holding("ends.ipynb") as notebook:
        path = tmp_path / "said"
        notebook.run(
            f"import atexit, pathlib; atexit.register(lambda: pathlib.Path({str(path)!r}).write_text(str(intact())))"
        )
        park(notebook)
        if end == "death":
            os.kill(notebook.pid, signal.SIGKILL)
        elif end == "restart":
            site.server.call(f"kernels/{notebook.kernel}/restart", method="POST")
        else:
            site.server.open(f"api/kernels/{notebook.kernel}", method="DELETE").close()
        until(lambda: reported.parked(notebook.pid) is None)
        assert site.machine.held(pid=notebook.pid) == 0
        assert not path.exists()
        if end == "restart":
            again = site.server.connect(notebook.kernel)
            assert "anew" in execute(again, "print('anew')")
            again.stop_channels()
    assert digest_in(trained[0].run("print(digest())")) == trained[1]
