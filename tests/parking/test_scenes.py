"""Notebooks as people have them are parked and come back whole: real kernels with the real TensorFlow."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.jupyter import LEAN, Notebook, reply_to
from tests.parking.notebooks import (
    BEGIN,
    PARK,
    Parkable,
    Site,
    answered,
    ask,
    ask_for_widgets,
    button,
    heard,
    send,
    send_custom,
)
from tests.sizes import CONTEXT, MIB
from tests.waiting import until
from tfgpu_magic.parking.frameworks import tensorflow as parked

PEOPLE = f"""
import sys
if {str(LEAN)!r} in sys.path: sys.path.remove({str(LEAN)!r})  # it hides matplotlib
{BEGIN}
{{}}
import asyncio, threading, ipywidgets
from tfgpu_magic.isolate.user_code import frames, module_of
def running():
    return {{{{module_of(one).split(".")[0] for top in sys._current_frames().values() for one in frames(top)}}}}
import matplotlib.pyplot as plt
layers = [tf.keras.layers.Dense(1024, "relu"), tf.keras.layers.BatchNormalization(), tf.keras.layers.Dropout(0.5)]
model = tf.keras.Sequential([tf.keras.Input((512,)), *layers, tf.keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
x, y = np.zeros((64, 512), "float32"), np.zeros(64, "float32")
kinds = tf.keras.callbacks
calls = [kinds.EarlyStopping(), kinds.ModelCheckpoint("model.keras"), kinds.ReduceLROnPlateau()]
def batches():
    for _ in range(4):
        yield x[:8], y[:8]
history = model.fit(x, y, batch_size=8, epochs=2, validation_split=0.25, callbacks=calls)
model.fit(batches(), verbose=0)
data = tf.data.Dataset.from_generator(batches, output_signature=(tf.TensorSpec((8, 512)), tf.TensorSpec(8)))
model.fit(data, verbose=0)
writer = tf.summary.create_file_writer("logs")
losses, axes = plt.subplots()
axes.plot(history.history["loss"])
predicted = model.predict(x, batch_size=8)
step = tf.function(lambda: model.weights[0].value.read_value())
step()
slider, seen = ipywidgets.IntSlider(3, 0, 10), []
def shows(number):
    seen.append(digest())
shown = ipywidgets.interactive(shows, number=slider)
display(shown)
fill()
print("ready")
"""

MONITORS = {
    "tqdm": "from tqdm.auto import tqdm; bar = tqdm(total=9); bar.update(3)",
    "tensorboard": "from tensorboard.summary.writer.event_file_writer import EventFileWriter as W; events = W('logs')",
}
"""What starts a thread of each library, as training with it does."""


@pytest.fixture(scope="module")
def made(site: Site) -> Iterator[Parkable]:
    """Return a notebook that has trained, drawn and shown."""
    with Parkable(site, "people.ipynb", PEOPLE.format("\n".join(MONITORS.values()))) as notebook:
        yield notebook


@pytest.fixture
def people(made: Parkable) -> Parkable:
    made.digest = made.finds()
    return made


def test_a_notebook_with_all_that_people_have_in_one_comes_back_bit_for_bit_and_goes_on(people: Parkable) -> None:
    before = people.held()
    away = people.park()

    assert people.finds() == people.digest
    assert before - away > 6 * MIB  # a model with its optimizer's two slots
    assert people.held() - away > 6 * MIB
    said = people.run(
        "assert step().numpy().tobytes() == model.weights[0].numpy().tobytes()\n"
        "assert len(history.history['loss']) == 2 and slider.value in (3, 8) and losses.axes == [axes]\n"
        "assert model.predict(x, batch_size=8, verbose=0).shape == predicted.shape\n"
        "model.fit(x, y, batch_size=8, verbose=0); fill(); print('went on')"
    )
    assert said == "went on\n"


@pytest.mark.parametrize("library", MONITORS)
def test_the_thread_of_a_library_that_watches_training_does_not_keep_it_from_parking(
    people: Parkable, library: str
) -> None:
    assert people.run(f"print({library!r} in running())") == "True\n"
    people.park()
    assert people.finds() == people.digest


TRAINS = """
over = threading.Event()
def trains():
    while not over.is_set():
        model.fit(x, y, batch_size=8, verbose=0)
trainer = threading.Thread(target=trains, name="trainer")
trainer.start()
"""
WATCHES = """
async def watches():
    while True:
        await asyncio.sleep(0.05)
task = asyncio.create_task(watches())
"""
RUNNING = {
    "a thread that trains": (TRAINS, "over.set(); trainer.join(); fill()", "while it is parked: trainer. Stop them"),
    "a timer": (
        "timer = threading.Timer(600, fill); timer.name = 'later'; timer.start()",
        "timer.cancel()",
        "parked: later",
    ),
    "a task that awaits": (WATCHES, "task.cancel()", "while it is parked: task watches"),
    "an iterator that calls Python": ("rows = iter(data)", "for row in rows: pass\ndel row, rows", parked.CALLS_PYTHON),
}


@pytest.mark.parametrize(("begin", "end", "said"), RUNNING.values(), ids=RUNNING)
def test_what_runs_is_named_and_parks_once_it_has_ended(people: Parkable, begin: str, end: str, said: str) -> None:
    people.run(begin)
    answer = people.run(PARK)
    assert str(said) in answer, answer
    digest = people.finds(end)
    people.park()
    assert people.finds() == digest


def test_a_slider_that_is_dragged_finds_everything_back(people: Parkable) -> None:
    number = people.run("seen.clear(); print(slider.comm.comm_id)").strip()
    away = people.park()
    for value in (5, 6, 7, 8):
        data = {"method": "update", "state": {"value": value}, "buffer_paths": list[str]()}
        send(people, "comm_msg", {"comm_id": number, "data": data})
    until(lambda: people.held() > away + 6 * MIB)

    assert people.run("print(slider.value, *seen)").split() == ["8", *[people.digest] * 4]


def test_what_a_page_asks_when_it_is_loaded_again_brings_nothing_back(people: Parkable) -> None:
    away = people.park()
    ask_for_widgets(people)
    assert ask(people, "comm_info_request", {})["status"] == "ok"
    assert ask(people, "is_complete_request", {"code": "if x:"})["status"] == "incomplete"
    assert not ask(people, "complete_request", {"code": "model.", "cursor_pos": 6}).get("matches")
    assert not ask(people, "inspect_request", {"code": "model", "cursor_pos": 5, "detail_level": 0}).get("found")
    chooser = '__import__("tfgpu_magic.notebook.chooser").notebook.chooser.state("")'
    asks = {"code": "", "silent": True, "store_history": False, "user_expressions": {"answer": chooser}}
    said = ask(people, "execute_request", asks)  # as the chooser's page does
    assert (said["status"], said["evalue"]) == ("error", "This notebook is parked: bring its memory back first.")
    debugger = {"type": "request", "seq": 1, "command": "debugInfo"}
    answered(people, send(people, "debug_request", debugger, channel="control"))

    assert people.held() == away
    assert people.finds() == people.digest


def test_a_live_table_that_a_page_draws_brings_nothing_back(people: Parkable) -> None:
    made = people.run("import tfgpu_magic; table = tfgpu_magic.MemoryTable(); print(table.comm.comm_id)")
    number = made.split()[-1]
    away = people.park()
    for size in ("1GiB", "2GiB"):
        with people.machine.add_neighbour(f"{size}@0"):
            send_custom(people, number, type="drawn")
            until(lambda: draws(people, number))
    ask_for_widgets(people)

    assert people.held() == away
    assert people.finds("table.close()") == people.digest


def draws(notebook: Notebook, comm: str) -> bool:
    """Return whether a table's state has come since the last look."""
    shown = []
    while notebook.client.iopub_channel.msg_ready():
        shown.append(notebook.client.get_iopub_msg(timeout=1)["content"])
    return any("state" in one["data"].get("state", {}) for one in shown if one.get("comm_id") == comm)


OWN = """
class Own(ipywidgets.Widget):
    def get_state(self, *args, **options):
        seen.append(digest())
        return super().get_state(*args, **options)
own = Own()
seen.clear()
print(own.comm.comm_id)
"""


def test_a_widget_of_the_users_own_class_is_answered_once_all_is_back(people: Parkable) -> None:
    number = people.run(OWN).split()[-1]
    away = people.park()
    ask_for_widgets(people)
    asked = send(people, "comm_msg", {"comm_id": number, "data": {"method": "request_state"}})
    assert ask(people, "kernel_info_request", {})["status"] == "ok"  # it has been heard

    assert people.held() == away
    heard(people)
    assert people.finds() == people.digest
    get = people.client.get_iopub_msg
    reply = until(lambda: get(timeout=60), lambda one: one["content"].get("comm_id") == number)
    assert (reply["parent_header"]["msg_id"], reply["content"]["data"]["method"]) == (asked, "update")
    assert {*people.run("own.close(); print(*seen)").split()} == {people.digest}


def test_parking_that_no_cell_asks_for_is_refused(people: Parkable) -> None:
    number = button(people, "get_ipython().run_line_magic('tf_gpu', 'park')")
    before = people.held()
    send_custom(people, number, event="click")
    until(lambda: heard(people), lambda text: "when a cell has ended" in text)

    assert people.held() == before


def test_a_subshells_cell_finds_everything_back(people: Parkable) -> None:
    asked = send(people, "create_subshell_request", {}, channel="control")
    subshell = answered(people, asked)["content"]["subshell_id"]
    people.run("seen.clear()")
    people.park()
    content = {"code": "seen.append(digest())", "silent": False, "store_history": False, "user_expressions": {}}
    cell = send(people, "execute_request", content, subshell_id=subshell)
    assert reply_to(people.client, cell)["status"] == "ok"
    answered(people, send(people, "delete_subshell_request", {"subshell_id": subshell}, channel="control"))

    assert people.run("print(*seen)").endswith(people.digest + "\n")


# --- several notebooks and room for one ---

TURNS = 2
ROOM = 480 * MIB
"""What is left of a GPU beside contexts, to notebooks of 320 MiB."""
LARGE = f"{BEGIN}\nweights = [tf.Variable(tf.zeros(16 * 2**20)) for _ in range(5)]; fill(); digests = []"
TURN = "digests.append(digest())\n%tf_gpu park"
HANGS = """
import pathlib, time
from tfgpu_magic.parking.frameworks.tensorflow import Variable
def hangs(self, real=Variable.{0}, calls=iter(range(9))):
    if next(calls) == 2:
        pathlib.Path({1!r}).touch()
        time.sleep(1000)
    real(self)
Variable.{0} = hangs
"""
"""Has the third variable hang on its way."""


@pytest.fixture
def several(site: Site) -> Iterator[list[Notebook]]:
    """Give three notebooks that are parked, on a GPU that has room for one."""
    notebooks = [Notebook(site.server, f"turns-{number}.ipynb") for number in range(3)]
    for notebook in notebooks:
        notebook.run(LARGE)
        assert "Parked" in notebook.run(TURN)
    others = site.machine.held() - sum(site.machine.held(pid=one.pid) for one in notebooks)
    left = 8192 * MIB - others - len(notebooks) * CONTEXT - ROOM
    with site.machine.add_neighbour(f"{left // MIB}MiB@0"):
        yield notebooks
    for notebook in notebooks:
        notebook.end()


def test_notebooks_that_want_the_same_room_take_turns_and_one_that_is_killed_on_its_way_locks_nothing(
    several: list[Notebook], tmp_path: Path
) -> None:
    for _ in range(TURNS):
        asked = [(notebook, notebook.client.execute(TURN)) for notebook in several]
        for notebook, cell in asked:
            assert reply_to(notebook.client, cell)["status"] == "ok"
    coming, leaving, stays = several
    for notebook in several:
        said = notebook.run(f"print('they are', len(digests), len({{*digests}}))\n{PARK}")
        assert f"they are {TURNS + 1} 1\n" in said, said

    for notebook, way in ((coming, "put_back"), (leaving, "take_out")):
        hangs = tmp_path / way
        notebook.run(f"{HANGS.format(way, str(hangs))}{PARK if way == 'put_back' else ''}")
        notebook.client.execute(PARK)
        until(hangs.exists)
        os.kill(notebook.pid, signal.SIGKILL)
        psutil.Process(notebook.pid).wait(30)
        assert "they are 1\n" in stays.run(f"print('they are', len({{*digests, digest()}}))\n{PARK}")
