"""Isolated cells in a real kernel with real TensorFlow: what they give back, bring back and show."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.isolate.notebook import Notebook, notebook
from tests.jupyter import configure
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic.ground.answer import OFFERS
from tfgpu_magic.simgpu import Machine

FILL = """
import tensorflow as tf
big = [tf.zeros((256, 2**20), tf.float32) for _ in range(6)]  # 6 GiB of 8
"""


def held(machine: Machine, book: Notebook) -> int:
    """Return what the driver says the kernel and all its children hold."""
    return sum(machine.held(pid=pid) for pid in (book.pid, *(child.pid for child in book.family())))


@pytest.mark.smoke
def test_a_cell_that_filled_a_gpu_gives_all_of_it_back(book: Notebook, machine: Machine) -> None:
    ran = book.isolated(FILL)

    assert ran.status == "ok", ran.text
    assert "peak 6.1 GiB in use on GPU 0, 6.4 GiB of GPU 0 given back." in ran.closing
    assert held(machine, book) == 0
    assert sum(process.held or 0 for process in machine.processes()) == 0
    assert book.run("import sys; 'tensorflow' in sys.modules").value == "False"


def test_a_kernel_that_has_imported_tensorflow_is_not_woken_and_mixed_precision_holds_in_its_cells_and_calls(
    book: Notebook,
) -> None:
    with Notebook(book.server, "import keras, sys, tensorflow as tf\nfrom tfgpu_magic import isolated") as one:
        ran = one.isolated("x = tf.constant([1.0, 2.0])\nv = tf.Variable([3.0])\nx", "-o x,v")
        kinds = one.run("type(x).__name__, type(v).__name__").value
        one.run("keras.config.set_dtype_policy('mixed_float16'); keras.config.set_image_data_format('channels_first')")
        cell = one.isolated("keras.layers.Dense(1).compute_dtype, keras.config.image_data_format()").value
        call = one.run("isolated(lambda: keras.layers.Dense(1).compute_dtype)()").value
        stage = one.run(
            "from tfgpu_magic.frameworks.tensorflow.devices import current_stage; print(current_stage().name)"
        ).stream()
    plain = book.isolated("import keras\nkeras.layers.Dense(1).compute_dtype").value

    assert ran.value.startswith("array(")
    assert kinds == "('ndarray', 'ndarray')"
    assert (cell, call, plain) == ("('float16', 'channels_first')", "'float16'", "'float32'")
    assert stage.strip() == "IMPORTED"


FIGURES = """
import gc, os, psutil, tempfile, threading
gc.collect()
_me, _folders = psutil.Process(), (tempfile.gettempdir(), os.environ["TFGPU_MAGIC_DIR"])
print(len(os.listdir("/proc/self/fd")), _me.memory_info().rss >> 20, threading.active_count(),
      len(_me.children(recursive=True)), *(len(os.listdir(folder)) for folder in _folders),
      open("/proc/self/maps").read().count("memfd"))
"""
TAKES = """
import time, tensorflow as tf, numpy as np
x = tf.zeros((1024, 1024))
time.sleep(0.3)
y = np.ones((1024, 1024))
"""


def test_ten_cells_leave_nothing(book: Notebook, machine: Machine) -> None:
    def found() -> list[int]:
        return [int(part) for part in book.run(FIGURES).stream().split()]

    def at_rest() -> bool:
        before = found()[2:]
        time.sleep(0.5)  # what is about to end does, and is not counted
        return found()[2:] == before

    for _ in range(2):
        book.isolated(TAKES, "-o y --growth")
    until(at_rest)
    opened, mebibytes, *before = found()
    for _ in range(10):
        assert book.isolated(TAKES, "-o y --growth").status == "ok"

    def nothing_left(now: list[int]) -> bool:
        few = now[0] < opened + 5 and now[1] < mebibytes + 10  # ZeroMQ opens a descriptor now and then
        return few and all(one <= was for one, was in zip(now[2:], before, strict=True))

    until(found, nothing_left)
    assert held(machine, book) == 0


def test_magics_shell_lines_and_await_work_as_in_any_cell(book: Notebook) -> None:
    book.run("word = 'from the notebook'")
    ran = book.isolated(
        "import asyncio\nfiles = !echo listed\n!echo shell $word\n%env TFGPU_TEST=1\nawait asyncio.sleep(0.01)\n"
        "import os\nfiles, os.environ['TFGPU_TEST']"
    )

    assert "shell from the notebook" in ran.stream()
    assert ran.value == "(['listed'], '1')"
    assert book.isolated("%%time\nprint('timed')").stream().startswith("timed\nCPU times")


def test_a_refusal_says_what_fits_as_it_is_said_above_a_cell(book: Notebook) -> None:
    (shown,) = book.isolated("kept = 1", "-o kept --timeout=9m limit 0=1GiB 5=1GiB").shown()
    line = "%%tf_gpu isolate -o kept --timeout 9m limit 0=1GiB"

    assert f"For those that are:   {line}" in shown["text/plain"]
    assert shown[OFFERS]["line"] == ""
    assert shown[OFFERS]["parts"][-1] == {"line": line, "restarts": False}


def test_the_notebooks_own_policy_holds_for_its_cells_too_and_a_refusal_says_so(book: Notebook) -> None:
    add = "import tensorflow as tf\nx = tf.constant(1.0) + 1"
    with Notebook(book.server, "%tf_gpu limit 5GiB") as one:
        its_own, said = one.isolated(add), one.isolated(add, "--growth")
        book.run("%%tf_gpu isolate --detach --limit 4GiB\nimport tensorflow as tf, time\ntf.zeros(9)\ntime.sleep(60)")
        book.run("job = _")
        until(lambda: "4.2 GiB" in book.run("%tf_gpu jobs").shown()[0]["text/plain"])
        refused, other = one.isolated("1"), one.isolated("1", "default")
        book.run("job.stop()")
        until(lambda: "running" not in book.run("%tf_gpu jobs").shown()[0]["text/plain"])
        one.run(add)
        full = one.isolated("1", "limit 4GiB")

    assert f"{(5 * GIB + CONTEXT) / GIB:.1f} GiB of GPU 0 given back" in its_own.closing
    assert "MiB of GPU 0 given back" in said.closing
    assert "The notebook's own `limit 5GiB` holds for its isolated cells too" in refused.text
    assert other.value == "1"
    assert "GiB  this notebook\n" in full.text


def test_loading_the_extension_in_the_cell_leaves_its_policy_as_it_is(book: Notebook) -> None:
    book.run("import os; os.environ['TFGPU_POLICY'] = 'limit 3GiB'")
    ran = book.isolated("%load_ext tfgpu_magic\nimport tensorflow as tf\nx = tf.constant(1.0) + 1", "--limit 1GiB")
    book.run("del os.environ['TFGPU_POLICY']")

    assert "1.2 GiB of GPU 0 given back" in ran.closing  # the limit and the context


WARM = """
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER
process = FORK_SERVER.start(); process.read_status(); process.close()
print(FORK_SERVER.process().pid)
"""


def warmed(book: Notebook) -> int:
    """Return the process that calls are started from, once TensorFlow is imported there."""
    return int(book.run(WARM).stream())


def test_warm_gets_ready_before_the_first_cell_and_unloading_the_extension_ends_that(
    book: Notebook, machine: Machine
) -> None:
    with Notebook(book.server) as one:
        before = one.family()
        ran = one.run("%tf_gpu isolate --warm")
        started = [child.pid for child in one.family()]
        pid = warmed(one)
        held = machine.held()
        cell = one.isolated("import sys; print('tensorflow' in sys.modules)").stream()
        imported = one.run("import sys; 'tensorflow' in sys.modules").value
        after = warmed(one)
        one.run("%unload_ext tfgpu_magic")
        left = one.family()
        one.run("%load_ext tfgpu_magic")
        again = one.isolated("2").value

    assert (before, held, left) == ([], 0, [])
    assert pid in started  # beside a child that an import there has for a moment
    assert ran.stream() == "Getting ready for isolated cells: TensorFlow is being imported for them.\n"
    assert cell == "True\n"  # nothing said of an import that it waits for
    assert imported == "False"
    assert (after, again) == (pid, "2")


def test_where_it_is_configured_loading_the_extension_gets_ready(machine: Machine, tmp_path: Path) -> None:
    configure(tmp_path, warm=True)
    with notebook(machine, tmp_path) as one:
        family = [child.pid for child in one.family()]

        assert warmed(one) in family
        assert machine.held() == 0
