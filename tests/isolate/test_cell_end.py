"""Isolated cells that are interrupted, time out, die, or lose their kernel: clear, soon, and without an orphan."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.isolate.notebook import HANG, LIGHT, Notebook
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]
GRACE = 1.0 * SLACK
LATE = 1.0 * SLACK  # seconds from the start of a process, by which it is in the midst of its cell
PYTHON = "while True: pass"


@pytest.fixture(scope="module")
def book(book: Notebook) -> Notebook:
    book.run(f"%config TfGpuMagics.grace = {GRACE}\nkept = 'still here'")
    return book


def making(path: Path) -> str:
    """Return code that makes a file."""
    return f"open({str(path)!r}, 'w').close()"


def test_an_interrupt_reaches_the_cell(book: Notebook, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with book.interrupted(begun.exists):
        ran = book.isolated(f"got = 'so far'\nwhile True: {making(begun)}", "-o got")

    assert ran.error["ename"] == "KeyboardInterrupt"
    assert "----> 3 while True: open" in ran.traceback
    assert book.run("got, kept").value == "('so far', 'still here')"  # what was bound by then is not lost
    assert book.calls() == []


def test_debugging_a_cell_that_raised_says_that_its_frames_are_gone(book: Notebook) -> None:
    debug = (
        "from unittest import mock\nwith mock.patch.object(get_ipython().InteractiveTB, 'debugger') as stands:\n"
        "    get_ipython().run_line_magic('debug', '')\nstands.called"
    )
    book.isolated("1 / 0")
    ours = book.run(debug)
    book.run("1 / 0")
    plain = book.run(debug)

    assert (ours.value, plain.value) == ("False", "True")
    assert "the cell's frames are gone with its process" in ours.stream()
    assert plain.stream() == ""


def test_an_interrupt_amid_displays_leaves_their_order_and_the_end_as_they_are(book: Notebook, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    body = (
        "import tensorflow as tf\nfrom IPython.display import display\nx = tf.ones(3)\n"
        f"try:\n    {making(begun)}\n    while True: display('before')\nexcept KeyboardInterrupt: pass\n"
        "for n in range(20):\n    print(n)\n    display('after')"
    )
    with book.interrupted(begun.exists):
        ran = book.isolated(body, "--growth")
    said = [
        text
        for kind, content in ran.messages
        if kind in ("stream", "display_data")
        for text in (content["text"].split() if kind == "stream" else [content["data"]["text/plain"].strip("'")])
    ]

    assert ran.status == "ok", ran.text
    assert said[-41:-1] == [text for n in range(20) for text in (str(n), "after")]
    assert "of GPU 0 given back" in ran.closing


def test_an_interrupt_before_the_cell_has_its_names_is_one(book: Notebook, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    slow = f"{making(begun)}; __import__('time').sleep(3600)"
    book.run(f"class Slow:\n    def __reduce__(self):\n        return exec, ({slow!r},)\nslow = Slow()")
    with book.interrupted(begun.exists):
        ran = book.isolated("slow")

    assert ran.error["ename"] == "KeyboardInterrupt"
    assert "tfgpu_magic" not in ran.traceback


def test_a_cell_that_does_not_heed_an_interrupt_is_killed_by_the_next_when_a_line_has_said_so(
    book: Notebook, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    with book.interrupted(begun.exists):
        ran = book.isolated(f"{making(begun)}\n{HANG}")

    assert ran.error["ename"] == "KeyboardInterrupt"
    assert "did not end, and was killed" in ran.error["evalue"]
    assert "The next interrupt kills it." in ran.stream("stderr")
    assert book.calls() == []
    assert book.run("kept").value == "'still here'"


@pytest.mark.parametrize("body", [PYTHON, HANG])
def test_a_timeout_ends_a_cell(book: Notebook, body: str) -> None:
    ran = book.isolated("got = 'so far'\n" + body, f"--timeout {LATE}s -o got")

    assert ran.error["ename"] == "TimedOut"
    assert body == HANG or "----> 3 while True: pass" in ran.traceback  # where it was
    assert "KeyboardInterrupt" not in ran.traceback  # nobody pressed that
    assert body == HANG or book.run("got").value == "'so far'"
    assert f"longer than {LATE:g} s" in ran.error["evalue"]
    assert "tfgpu_magic/isolate" not in ran.traceback  # it is no fault of ours
    assert book.calls() == []


def test_a_timeout_leaves_the_users_own_lines_in_the_traceback(book: Notebook) -> None:
    body = "def wait():\n    try:\n        while True: pass\n    except KeyboardInterrupt:\n        raise\nwait()"
    ran = book.isolated(body, f"--timeout {LATE}s")

    assert ran.error["ename"] == "TimedOut"
    assert "except KeyboardInterrupt:" in ran.traceback
    assert "except TimedOut" not in ran.traceback


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import os; os._exit(3)", "exit status 3"),
        ("def inner():\n    import ctypes; ctypes.string_at(0)\ninner()", "], line 4, inner\n  in Cell In["),
    ],
)
def test_a_cell_that_dies_says_of_what_and_the_notebook_loses_nothing(book: Notebook, body: str, said: str) -> None:
    ran = book.isolated("print('last words')\n" + body)

    assert ran.error["ename"] == "WorkerDied"
    assert said in ran.error["evalue"]
    assert "last words" in ran.stream()
    assert "no GPU memory held any more" in ran.closing
    assert book.run("kept").value == "'still here'"
    assert book.isolated("kept").value == "'still here'"
    assert book.calls() == []


def test_too_late_in_a_cell_is_told_with_what_to_say_above_it(book: Notebook) -> None:
    ran = book.isolated("import tensorflow as tf\nx = tf.zeros(1)\n%tf_gpu limit 1GiB", "--growth")

    told = ran.stream("stderr")

    assert "in this cell" in told
    assert "Say it above the cell:   %%tf_gpu isolate limit 1GiB" in told


def test_a_cell_that_runs_out_of_memory_says_who_has_it(book: Notebook) -> None:
    with Notebook(book.server, "%tf_gpu limit 5GiB", "import tensorflow as tf; x = tf.ones(9)") as other:
        ran = other.isolated("import tensorflow as tf\ntf.zeros((1024, 2**20))", "--growth")

    assert ran.error["ename"] == "ResourceExhaustedError"
    (told,) = (data["text/plain"] for data in ran.shown() if data["text/plain"].startswith("Out of GPU memory"))
    assert "5.2 GiB  this notebook\n" in told
    assert next(kind for kind, _ in ran.messages if kind in ("error", "display_data")) == "error"


@pytest.mark.parametrize("how", ["killed", "restarted"])
def test_a_kernel_that_goes_takes_its_cells_along(book: Notebook, machine: Machine, how: str) -> None:
    one = Notebook(book.server, LIGHT, f"import sys; sys.path.insert(0, {str(ROOT)!r})")
    body = f"from tests.simgpu.on_machine import allocate\nallocate(2**20)\n{HANG}"
    one.client.execute(f"%%tf_gpu isolate\n{body}")
    until(lambda: [process for process in machine.processes() if (process.held or 0) > 0])
    family = one.family()
    if how == "killed":
        os.kill(one.pid, signal.SIGKILL)
    else:
        book.server.open(f"api/kernels/{one.kernel}/restart", {}).close()
    one.client.stop_channels()

    psutil.wait_procs(family, timeout=240)
    assert [child for child in family if child.is_running()] == []
    assert sum(process.held or 0 for process in machine.processes()) == 0
    book.server.delete(f"api/kernels/{one.kernel}")
