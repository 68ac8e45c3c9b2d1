"""The real TensorFlow's variables leave a real kernel, and are back before anything of the notebook's runs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.jupyter import Notebook, reply_to
from tests.magic.shell import shown
from tests.parking.notebooks import (
    SLOW,
    Site,
    answered,
    ask,
    ask_for_widgets,
    button,
    digest_in,
    heard,
    send,
    send_custom,
)
from tests.processes import run
from tests.sizes import CONTEXT, LITTLE, MIB
from tests.waiting import until
from tfgpu_magic.monitor.board import wanted
from tfgpu_magic.parking.frameworks import UNREADABLE
from tfgpu_magic.simgpu import Machine

BEGIN = """
%tf_gpu growth --release
import hashlib
import numpy as np, tensorflow as tf
model = tf.keras.Sequential([tf.keras.Input((512,)), tf.keras.layers.Dense(2048), tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(np.zeros((64, 512), "float32"), np.zeros(64, "float32"), epochs=2)
random = np.random.default_rng(3)
keras = [one.value for one in (*model.weights, *model.optimizer.variables)]
variables = [*(one for one in keras if "GPU" in one.device), tf.Variable(tf.zeros(16 * 2**20))]
for one in variables:
    one.assign(random.integers(1, 99, one.shape).astype(one.dtype.as_numpy_dtype))
step = tf.function(lambda: variables[0].read_value())
def digest():
    return hashlib.sha256(b"".join(one.numpy().tobytes() for one in variables)).hexdigest()
print(digest())
"""
PARK = "%tf_gpu park"


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


@pytest.fixture(scope="module")
def trained(site: Site) -> Iterator[tuple[Notebook, str]]:
    """Return a notebook that has trained a model, and the digest of all its variables."""
    notebook = Notebook(site.server, "model.ipynb")
    said = notebook.run(BEGIN)
    yield notebook, digest_in(said)
    notebook.end()


def park(notebook: Notebook) -> None:
    said = notebook.run(PARK)
    assert re.search(r"Parked in [\d.]+ s: \d+ MiB in host memory; CUDA's context stays on the GPU\.", said), said


def test_the_next_cell_finds_every_variable_as_it_was(site: Site, trained: tuple[Notebook, str]) -> None:
    notebook, digest = trained
    before = site.machine.held(pid=notebook.pid)
    for _ in range(3):
        park(notebook)
        assert site.machine.held(pid=notebook.pid) in LITTLE
        assert before - site.machine.held(pid=notebook.pid) > 64 * MIB
        assert digest_in(notebook.run("print(digest())")) == digest
        assert not notebook.run("assert step().numpy().tobytes() == variables[0].numpy().tobytes()")
    assert site.machine.held(pid=notebook.pid) > CONTEXT + 64 * MIB


def test_the_check_says_what_leaves_and_what_stays_and_changes_nothing(
    site: Site, trained: tuple[Notebook, str]
) -> None:
    notebook, digest = trained
    before = site.machine.held(pid=notebook.pid)
    said = notebook.run("kept = variables[-1].read_value() + 1\n%tf_gpu park --check")
    line = re.search(r"(\d+) MiB can go to host memory in [^;]+ s; 64 MiB and CUDA's context stay on the GPU\.", said)
    assert line, said
    assert int(line[1]) >= 64
    assert "float32 tensor of 16777216 (64 MiB) stays: TensorFlow cannot replace it in place." in said
    assert site.machine.held(pid=notebook.pid) >= before
    begin = "import threading; over = threading.Event(); work = threading.Thread(target=over.wait); work.start()"
    notebook.run(begin)
    assert "These threads, tasks or callbacks may use the GPU" in notebook.run("%tf_gpu park --check")
    assert digest_in(notebook.run("over.set(); work.join(); del kept; print(digest())")) == digest


def test_a_question_wakes_nothing(site: Site, trained: tuple[Notebook, str]) -> None:
    notebook, digest = trained
    park(notebook)
    away = site.machine.held(pid=notebook.pid)
    for kind in ("complete_request", "inspect_request"):
        assert ask(notebook, kind, {"code": "variables", "cursor_pos": 9})["status"] == "error"
    ask_for_widgets(notebook)
    assert site.machine.held(pid=notebook.pid) == away
    assert digest_in(notebook.run("print(digest())")) == digest


def test_nothing_stays_of_the_gate_when_all_is_back(trained: tuple[Notebook, str]) -> None:
    notebook, _ = trained
    look = (
        "import gc\n"
        "kernel, shell = get_ipython().kernel, get_ipython()\n"
        "print({n: h.__qualname__ for n, h in (kernel.shell_handlers | kernel.control_handlers).items()},\n"
        "      'run_cell_async' in vars(shell), 'trigger' in vars(shell.events), 'finish_metadata' in vars(kernel),\n"
        "      gc.isenabled())"
    )
    before = notebook.run(look)
    park(notebook)

    assert notebook.run(look) == before


def test_a_cell_that_got_through_would_be_seen_here(trained: tuple[Notebook, str]) -> None:
    notebook, digest = trained
    notebook.run(FORCED)

    assert digest_in(notebook.run("print(forced)")) != digest
    assert digest_in(notebook.run("print(digest())")) == digest


def test_without_room_on_the_gpu_the_cell_waits_and_an_interrupt_gives_the_prompt_back(
    site: Site, trained: tuple[Notebook, str]
) -> None:
    notebook, digest = trained
    park(notebook)
    neighbour = site.machine.add_foreign("7.6GiB@0", name="secret")
    asked = notebook.client.execute("ran = True")
    said = until(lambda: heard(notebook), lambda text: "free yet. Trying again every second." in text)
    assert re.search(r"7\.6 GiB  (nobody|root)\b", said), said  # who holds it, and nothing more of another user's
    assert "secret" not in said
    assert "this notebook" in said
    os.kill(notebook.pid, signal.SIGINT)
    answer = reply_to(notebook.client, asked)
    assert "The cell was not run. Interrupted: this notebook is still parked" in answer["evalue"]
    heard(notebook)
    waiting = notebook.client.execute("waited = digest()")
    until(lambda: heard(notebook), lambda text: "free yet. Trying again every second." in text)
    neighbour.stop()

    assert reply_to(notebook.client, waiting)["status"] == "ok"
    assert notebook.run("print(waited, 'ran' in globals())").split() == [digest, "False"]


def test_one_interrupt_ends_the_wait_of_every_message_that_came_meanwhile(
    site: Site, trained: tuple[Notebook, str]
) -> None:
    notebook, digest = trained
    number = button(notebook, "seen.append(1)")
    park(notebook)
    away = site.machine.held(pid=notebook.pid)
    for noted in Path(os.environ["TFGPU_MAGIC_DIR"]).rglob(f"{wanted.PREFIX}*"):
        noted.unlink()
    with site.machine.add_neighbour("7.6GiB@0"):
        for _ in range(5):
            send_custom(notebook, number, event="click")
        asked = send(notebook, "kernel_info_request", {})
        until(wanted.by_others)  # the first of them finds no room
        os.kill(notebook.pid, signal.SIGINT)

        assert reply_to(notebook.client, asked)["status"] == "ok"
        assert site.machine.held(pid=notebook.pid) == away
    assert notebook.run("print(seen, digest())").endswith(f"[] {digest}\n")


WITHOUT = "%tf_gpu unpark --without-gpu "
READS = """
for read in (keras[0].numpy, step, lambda: keras[-1] + 1, lambda: history.model.predict(np.zeros((1, 512)), verbose=0)):
    try:
        print("it was read", read())
    except RuntimeError as error:
        print(error)
"""
SAVES = """
np.savez({0!r}, **model)
saved = np.load({0!r})
print(all((saved[name] == array).all() for name, array in model.items()), len(keras) <= len(model))
print(hashlib.sha256(b"".join(one.tobytes() for one in variables.values())).hexdigest())
"""


def test_without_its_gpu_what_is_in_host_memory_is_saved_and_nothing_empty_is_read(site: Site, tmp_path: Path) -> None:
    notebook = Notebook(site.server, "save.ipynb")
    digest = digest_in(notebook.run(BEGIN))
    notebook.run(f"step(); import atexit, pathlib; atexit.register(pathlib.Path({str(tmp_path / 'ended')!r}).touch)")
    assert "This notebook is not parked" in notebook.run(f"{WITHOUT} model")
    park(notebook)
    answer = reply_to(notebook.client, notebook.client.execute(f"{WITHOUT} modle"))
    assert "There is no variable `modle`. Nothing was changed." in answer["evalue"]
    heard(notebook)
    said = notebook.run(f"{WITHOUT} model variables\n")
    assert re.search(r"`model` is now a dict with \d+ NumPy arrays\.", said), said
    assert notebook.run("from tfgpu_magic.frameworks import self_report; print(self_report.away())") == "{}\n"
    said = notebook.run(READS)
    assert (said.count(UNREADABLE), "it was read" in said) == (4, False), said
    said = notebook.run(SAVES.format(str(tmp_path / "model.npz")))
    assert (digest_in(said), said.splitlines()[0]) == (digest, "True True")
    assert "Not parked." in notebook.run(PARK)
    process = psutil.Process(notebook.pid)
    notebook.end()
    process.wait(60)

    assert [one.name for one in tmp_path.iterdir()] == ["model.npz"]


def test_meanwhile_the_kernel_answers_and_an_interrupt_brings_back_what_has_left(
    trained: tuple[Notebook, str], tmp_path: Path
) -> None:
    notebook, digest = trained
    notebook.run(SLOW.format(str(tmp_path), 64 * MIB))
    asked = notebook.client.execute(PARK)
    until((tmp_path / "begun").exists)
    assert answers(notebook)
    until(lambda: heard(notebook), lambda text: re.search(r"64 MiB of \d+ MiB are in host memory; ", text))
    for _ in range(2):  # who is impatient loses nothing
        os.kill(notebook.pid, signal.SIGINT)
    assert answers(notebook)
    (tmp_path / "go").touch()

    assert reply_to(notebook.client, asked)["status"] == "ok"
    until(
        lambda: heard(notebook),
        lambda text: "Not parked." in text and "interrupted. Everything is back on the GPU." in text,
    )
    assert digest_in(notebook.run("slow.stop(); print(digest())")) == digest


def answers(notebook: Notebook) -> bool:
    """Return whether the control channel answers."""
    asked = send(notebook, "kernel_info_request", {}, channel="control")
    return bool(answered(notebook, asked)["content"]["status"] == "ok")


ENDS = """
import atexit, pathlib, weakref
class Model:
    pass
kept = Model()
for number, register in enumerate([atexit.register, lambda do, *more: weakref.finalize(kept, do, *more)]):
    register(pathlib.Path({!r}, str(number)).touch)
{}
"""


@pytest.mark.parametrize("park_it", [True, False])
def test_what_is_told_to_end_while_it_is_parked_runs_no_exit_function(
    site: Site, tmp_path: Path, park_it: bool
) -> None:
    notebook = Notebook(site.server, "ends.ipynb")
    notebook.run(ENDS.format(str(tmp_path), BEGIN if park_it else ""))
    if park_it:
        park(notebook)
    process = psutil.Process(notebook.pid)
    notebook.end()
    process.wait(60)

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
    with Machine.create("8GiB") as machine:
        parked, completions, after = run(machine, in_a_terminal)

    assert "4 MiB in host memory" in parked
    assert completions == []
    assert after == "1.048576e+06\n"
