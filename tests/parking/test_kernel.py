"""The real TensorFlow's variables leave a real kernel, and are back before anything of the notebook's runs."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.jupyter import Notebook, reply_to
from tests.magic.shell import shown
from tests.parking.notebooks import MODEL, PARK, SLOW, Parkable, Site, answered, button, heard, send, send_custom
from tests.processes import run
from tests.sizes import MIB
from tests.waiting import until
from tfgpu_magic.claims.ledger import LEDGER
from tfgpu_magic.parking.frameworks import UNREADABLE


def test_the_next_cell_finds_every_variable_as_it_was(trained: Parkable) -> None:
    for _ in range(3):
        before = trained.held()
        parked = trained.park()
        assert before - parked > 64 * MIB
        assert trained.finds("assert step().numpy().tobytes() == table.numpy().tobytes()") == trained.digest
        assert trained.held() - parked > 64 * MIB


def test_the_check_says_what_leaves_and_what_stays_and_changes_nothing(trained: Parkable) -> None:
    before = trained.held()
    said = trained.run("kept = table.read_value() + 1\n%tf_gpu park --check")
    line = re.search(r"(\d+) MiB can go to host memory in [^;]+ s; 64 MiB and CUDA's context stay on the GPU\.", said)
    assert line, said
    assert int(line[1]) >= 64
    assert "float32 tensor of 16777216 (64 MiB) stays: TensorFlow cannot replace it in place." in said
    assert trained.held() >= before
    begin = "import threading; over = threading.Event(); work = threading.Thread(target=over.wait); work.start()"
    trained.run(begin)
    assert "These threads, tasks or callbacks may use the GPU" in trained.run("%tf_gpu park --check")
    assert trained.finds("over.set(); work.join(); del kept") == trained.digest


def test_nothing_stays_of_the_gate_when_all_is_back(trained: Parkable) -> None:
    look = (
        "import gc\n"
        "kernel, shell = get_ipython().kernel, get_ipython()\n"
        "print({n: h.__qualname__ for n, h in (kernel.shell_handlers | kernel.control_handlers).items()},\n"
        "      'run_cell_async' in vars(shell), 'trigger' in vars(shell.events), 'finish_metadata' in vars(kernel),\n"
        "      gc.isenabled())"
    )
    before = trained.run(look)
    trained.park()

    assert trained.run(look) == before


FORCED = """
from tfgpu_magic.parking import this_notebook
from tfgpu_magic.parking.kernel import ipython
process, _ = this_notebook.this_process(get_ipython())
def force():
    global forced
    process.park()
    process._gate.open()
    forced = digest()
    process._gate.close()
ipython.at_end_of_cell(get_ipython(), force)
"""


def test_a_cell_that_got_through_would_be_seen_here(trained: Parkable) -> None:
    trained.run(FORCED)

    assert trained.run("print(forced)").strip() != trained.digest
    assert trained.finds() == trained.digest


def waits_for_room(notebook: Parkable) -> str:
    """Return what is shown below a cell that finds no room."""
    return until(lambda: heard(notebook), lambda text: "free yet." in text)


def test_without_room_on_the_gpu_the_cell_waits_and_an_interrupt_gives_the_prompt_back(trained: Parkable) -> None:
    trained.park()
    neighbour = trained.machine.add_foreign("7.6GiB@0", name="secret")
    asked = trained.client.execute("ran = True")
    said = waits_for_room(trained)
    assert re.search(r"7\.6 GiB  (nobody|root)\b", said), said  # who holds it, and nothing more of another user's
    assert "secret" not in said
    assert "this notebook" in said
    os.kill(trained.pid, signal.SIGINT)
    answer = reply_to(trained.client, asked)
    assert "The cell was not run. Interrupted: this notebook is still parked" in answer["evalue"]
    heard(trained)
    waiting = trained.client.execute("waited = digest()")
    waits_for_room(trained)
    neighbour.stop()

    assert reply_to(trained.client, waiting)["status"] == "ok"
    assert trained.run("print(waited, 'ran' in globals())").split() == [trained.digest, "False"]


def test_one_interrupt_ends_the_wait_of_every_message_that_came_meanwhile(trained: Parkable) -> None:
    number = button(trained, "seen.append(1)")
    away = trained.park()
    with LEDGER.transaction() as state:
        state.wanted.clear()
    with trained.machine.add_neighbour("7.6GiB@0"):
        for _ in range(5):
            send_custom(trained, number, event="click")
        asked = send(trained, "kernel_info_request", {})
        until(LEDGER.wanted_by_others)  # the first of them finds no room
        os.kill(trained.pid, signal.SIGINT)

        assert reply_to(trained.client, asked)["status"] == "ok"
        assert trained.held() == away
    assert trained.finds("print(seen)") == trained.digest
    assert trained.run("print(seen)") == "[]\n"


WITHOUT = "%tf_gpu unpark --without-gpu "
VALUES = """
step(); import atexit, pathlib; atexit.register(pathlib.Path({0!r}).touch)
weight = model.weights[0].value
values = {{one.path: one.numpy().tobytes() for one in (*model.variables, *model.optimizer.variables)}}
values["table"] = table.numpy().tobytes()
"""
READS = """
for read in (weight.numpy, step, lambda: weight + 1, lambda: history.model.predict(np.zeros((1, 512)), verbose=0)):
    try:
        print("it was read", read())
    except RuntimeError as error:
        print(error)
"""
SAVES = """
np.savez({0!r}, table=table, **model)
saved = np.load({0!r})
print(all(saved[name].tobytes() == content for name, content in values.items()))
"""


def test_without_its_gpu_what_is_in_host_memory_is_saved_and_nothing_empty_is_read(site: Site, tmp_path: Path) -> None:
    notebook = Parkable(site, "save.ipynb", MODEL)
    notebook.run(VALUES.format(str(tmp_path / "ended")))
    assert "This notebook is not parked" in notebook.run(f"{WITHOUT} model")
    notebook.park()
    answer = reply_to(notebook.client, notebook.client.execute(f"{WITHOUT} modle"))
    assert "There is no variable `modle`. Nothing was changed." in answer["evalue"]
    heard(notebook)
    said = notebook.run(f"{WITHOUT} model table\n")
    assert re.search(r"`model` is now a dict with \d+ NumPy arrays\.\n?.*`table` is now a NumPy array\.", said), said
    assert notebook.run("from tfgpu_magic.frameworks import self_report; print(self_report.away())") == "{}\n"
    said = notebook.run(READS)
    assert (said.count(str(UNREADABLE)), "it was read" in said) == (4, False), said
    assert notebook.run(SAVES.format(str(tmp_path / "model.npz"))) == "True\n"
    assert "Not parked." in notebook.run(PARK)
    ends(notebook)

    assert [one.name for one in tmp_path.iterdir()] == ["model.npz"]


def ends(notebook: Notebook) -> None:
    """Have a notebook end as its page does, and wait until it has."""
    process = psutil.Process(notebook.pid)
    notebook.end()
    process.wait(60)


def test_meanwhile_the_kernel_answers_and_an_interrupt_brings_back_what_has_left(
    trained: Parkable, tmp_path: Path
) -> None:
    trained.run(SLOW.format(str(tmp_path), 64 * MIB))
    asked = trained.client.execute(PARK)
    until((tmp_path / "begun").exists)
    assert answers(trained)
    until(lambda: heard(trained), lambda text: re.search(r"64 MiB of \d+ MiB are in host memory; ", text))
    for _ in range(2):  # who is impatient loses nothing
        os.kill(trained.pid, signal.SIGINT)
    assert answers(trained)
    (tmp_path / "go").touch()

    assert reply_to(trained.client, asked)["status"] == "ok"
    until(
        lambda: heard(trained),
        lambda text: "Not parked." in text and "interrupted. Everything is back on the GPU." in text,
    )
    assert trained.finds("slow.stop()") == trained.digest


def answers(notebook: Notebook) -> bool:
    """Return whether the control channel answers."""
    asked = send(notebook, "kernel_info_request", {}, channel="control")
    return bool(answered(notebook, asked)["content"]["status"] == "ok")


ENDS = """
import atexit, pathlib, weakref
class Kept:
    pass
kept = Kept()
for number, register in enumerate([atexit.register, lambda do, *more: weakref.finalize(kept, do, *more)]):
    register(pathlib.Path({!r}, str(number)).touch)
"""


@pytest.mark.parametrize("park_it", [True, False])
def test_what_is_told_to_end_while_it_is_parked_runs_no_exit_function(
    site: Site, tmp_path: Path, park_it: bool
) -> None:
    notebook = Parkable(site, "ends.ipynb", MODEL)
    notebook.run(ENDS.format(str(tmp_path)))
    if park_it:
        notebook.park()
    ends(notebook)

    assert sorted(one.name for one in tmp_path.iterdir()) == ([] if park_it else ["0", "1"])


def in_a_terminal() -> tuple[str, list[object], str]:
    """Return what is said at the end of the cell that parks, what is completed then, and what its next cell says."""
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    *_, parked = shown("%load_ext tfgpu_magic", TERMINAL, PARK)
    with provisionalcompleter():
        completions = list[object](InteractiveShell.instance().Completer.completions("varia", 5))
    return parked, completions, shown("print(variable.numpy().sum())")[0]


TERMINAL = """
%tf_gpu growth --release
import tensorflow as tf
variable = tf.Variable(tf.zeros(2**20)); variable.assign([1.0] * 2**20)
"""


def test_in_a_terminal_it_is_parked_and_comes_back() -> None:
    parked, completions, after = run("8GiB", in_a_terminal)

    assert "4 MiB in host memory" in parked
    assert completions == []
    assert after == "1.048576e+06\n"
