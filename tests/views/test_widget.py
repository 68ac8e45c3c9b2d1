"""`%tf_gpu top` in a real kernel: a table that goes on while cells run, and costs one thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.machines import machine_of
from tests.magic.shell import last
from tests.processes import PATIENCE, run
from tests.sizes import GIB, MIB
from tests.views.conftest import Kernel
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

machine = machine_of("8GiB,16GiB", scope="function")

WATCHED = """
closed, close = [], widget.Watcher.close
widget.Watcher.close = lambda watcher: (closed.append(True), close(watcher))
"""
THREADS = "[thread.name for thread in threading.enumerate()]"
"""What a kernel's threads are called: that of the table sends its states, and ends when no page draws them."""
AWAY = """
import pathlib, threading
(top,) = (thread for thread in threading.enumerate() if thread.name == "tfgpu_magic-top")
threading.Thread(target=lambda: (top.join(), pathlib.Path({path!r}).touch())).start()
"""
"""A cell that has a file made when that thread has ended."""


def used(state: dict[str, Any], gpu: str = "1") -> int:
    return int(state["gpus"][gpu].get("used", -1)) if gpu in state["gpus"] else -1


@pytest.mark.smoke
def test_the_table_opens_with_figures_and_follows_while_a_cell_runs(here: Kernel, machine: Machine) -> None:
    here.run("%tf_gpu limit 1GiB\n%tf_gpu top")
    (model,) = here.models()
    here.start("import time; time.sleep(3600)")
    neighbour = machine.add_neighbour("9GiB@1")
    seen = here.until(lambda state: used(state) == 9 * GIB and "1 " + str(neighbour.pid) in state["rows"])

    opened = model["data"]["state"]
    assert set(opened["state"]["gpus"]) == {"0", "1"}
    assert "export" in opened["_esm"]
    assert ".tfgpu-view" in opened["_css"]
    assert seen["rows"][f"1 {neighbour.pid}"]["held"] == 9 * GIB
    assert seen["gpus"]["0"]["policy"] == "limit 1 GiB"


def test_this_notebooks_own_figures_are_in_it_while_it_works(here: Kernel, machine: Machine) -> None:
    grow = "kept = []\nwhile len(kept) < 100: kept.append(tf.zeros(2**24)); time.sleep(.3)"
    here.run("%tf_gpu visible 1; growth\nimport tensorflow as tf, time\n%tf_gpu top")
    here.start(grow)
    first = here.until(lambda state: "held" in this(state) and in_use(state) > 64 * MIB)
    unattributed = [note for note in first["notes"] if "Attribution" in note["text"]]
    later = here.until(lambda state: in_use(state) > in_use(first) + 128 * MIB)
    held = machine.held(pid=this(later)["pid"], gpu=1)

    assert this(later)["owner"] == "this notebook"
    assert this(later)["policy"] == "growth"
    assert unattributed == []
    assert this(first)["held"] <= this(later)["held"] <= held
    assert first["gpus"]["1"]["logical"] == "GPU:0"


def this(state: dict[str, Any]) -> dict[str, Any]:
    return next((row for row in state["rows"].values() if row["who"] == "this"), {})


def in_use(state: dict[str, Any]) -> int:
    return int(this(state).get("figures", {}).get("TensorFlow", {}).get("in use", 0))


def test_front_ends_without_widgets_get_the_table_as_html_and_text(here: Kernel, machine: Machine) -> None:
    here.run("%tf_gpu top")
    here.run(f"from tfgpu_magic.notebook import widget\nwidget.SAVED_TIMEOUT = {PATIENCE}")
    with machine.add_neighbour("9GiB@1"):  # what is drawn hears of it within a second; what is saved has it
        here.run("%tf_gpu top")
    here.run("widget.fetch.table = lambda *_, **__: widget.Table(error='It hangs.')\n%tf_gpu top")
    (first, second, drawn) = here.displayed()

    assert "Simulated GPU 16GiB" in first["text/plain"]
    assert "<table>" in first["text/html"]
    assert "9.0 / 16 GiB" in second["text/plain"]
    assert "Simulated GPU 16GiB" in drawn["text/plain"]  # where the look for what is saved fails
    assert "It hangs." not in drawn["text/plain"]


def test_a_closed_table_is_looked_for_no_more(here: Kernel) -> None:
    here.run("import threading, time, tfgpu_magic\ntables = [tfgpu_magic.MemoryTable() for _ in range(3)]")
    here.run(f"assert {THREADS}.count('tfgpu_magic-top') == 1")
    assert len(here.models()) == 1  # it costs what one does
    here.run(f"from tfgpu_magic.notebook import widget\n{WATCHED}\ntables[0].close()")
    here.run(f"while 'tfgpu_magic-top' in {THREADS}: time.sleep(0.1)\nassert closed == [True]")
    here.run("%tf_gpu top")
    here.until(lambda state: used(state) >= 0)


HANGS = """
import threading
from tfgpu_magic.notebook import widget
see, go_on, widget.LOOK_TIMEOUT = widget.Watcher.read, threading.Event(), 0.1
def hang(watcher):
    go_on.wait()
    return see(watcher)
widget.Watcher.read = hang
"""
FAILS = """
def fail(*_):
    raise ValueError("nobody has thought of this")
"""


def test_no_cell_waits_for_a_look_that_hangs_and_what_fails_is_done_again(here: Kernel) -> None:
    here.run(f"{HANGS}\n%tf_gpu top")
    here.run("table = widget.MemoryTable._one\ntable.close()\ntable.__del__()")  # which Python calls where it pleases
    here.run("table = widget.MemoryTable()\ntable.refresh()\nassert 'cannot be read' in table.state['error']")
    here.run("go_on.set()")
    here.until(lambda state: used(state) == 0)
    here.run(f"{FAILS}\nwidget.Watcher.read = fail")
    here.until(lambda state: "something is wrong in tfgpu_magic" in state.get("error", ""))
    here.run("widget.Watcher.read, table.show = see, fail")
    here.run("del table.show")  # the drawing, too, is tried again
    here.until(lambda state: used(state) == 0)


def test_a_page_that_vanishes_is_sent_nothing_more_until_it_is_back(
    here: Kernel, machine: Machine, tmp_path: Path
) -> None:
    away = tmp_path / "away"
    here.run("from tfgpu_magic.notebook import widget; widget.PRESENT_FOR = 5.0")
    here.run(f"%tf_gpu top\n{AWAY.format(path=str(away))}")
    (model,) = here.models()
    until(away.exists)
    before = len(here.heard)
    machine.add_neighbour("9GiB@1")
    here.send(model["comm_id"], {"type": "drawn"})
    here.until(lambda state: used(state) == 9 * GIB)
    here.until(lambda state: used(state) == 9 * GIB)
    again = here.heard[before:]

    assert any("history" in said["content"].get("data", {}).get("state", {}) for said in again)


def last_in(here: Kernel) -> Any:
    """Return the last state that was sent, after a second in which one is waited for."""
    here.rest(1)
    return here.states()[-1] if here.states() else {}


def test_while_a_cell_runs_a_page_that_cannot_be_heard_is_sent_less_and_less(here: Kernel) -> None:
    here.run("from tfgpu_magic.notebook import widget; widget.PRESENT_FOR, widget.DOUBT = 0.5, 1.0")
    here.run("%tf_gpu top")
    here.start("import time; time.sleep(3600)")
    rare = until(lambda: last_in(here), lambda state: state.get("every", 0) >= 4)
    later = until(lambda: last_in(here), lambda state: state is not rare)

    assert later["state"]["time"] - rare["state"]["time"] > 2  # of looks: a busy machine hears them late


def test_in_colab_it_is_drawn_once_and_again_when_that_is_asked(here: Kernel, machine: Machine) -> None:
    colab = (
        "import sys, types, anywidget._util\nanywidget._util.enable_custom_widget_manager_once = lambda: None\n"
        "sys.modules['google.colab'] = types.ModuleType('google.colab')\n"
    )
    here.run(colab)
    here.run("%tf_gpu top")
    (model,) = here.models()
    machine.add_neighbour("9GiB@1")
    here.run(f"import threading\nassert 'tfgpu_magic-top' not in {THREADS}")

    def refreshed() -> int:
        here.send(model["comm_id"], {"type": "refresh"})
        return used(here.until(lambda _: True, seconds=1))

    until(refreshed, lambda size: size == 9 * GIB, despite=AssertionError)  # the next reading has it

    assert model["data"]["state"]["live"] is False


def test_a_directory_that_cannot_be_used_is_said_and_healed(here: Kernel, tmp_path: Path) -> None:
    folder = tmp_path / "board"
    folder.symlink_to(tmp_path)
    here.run(f"import os; os.environ['TFGPU_MAGIC_DIR'] = {str(folder)!r}\n%tf_gpu top")
    (model,) = here.models()
    folder.unlink()
    here.until(lambda state: "error" not in state and used(state) == 0)

    first = model["data"]["state"]["state"]
    assert "is a link" in first["error"]


def test_in_a_terminal_top_is_one_look() -> None:
    seen = run("1x8GiB", last, "%tf_gpu top")

    assert "Simulated GPU 8GiB" in seen.text


def test_a_missing_build_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tfgpu_magic.errors import MonitorError
    from tfgpu_magic.notebook import widget

    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)

    with pytest.raises(MonitorError, match="not built here"):
        widget._read_built("widget.js")
