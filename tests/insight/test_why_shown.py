"""Where `%tf_gpu why` is shown by itself, and where not: below errors in real IPythons and in a notebook."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from tests.insight.why_on_machine import AWAKE, RAISES, failed, seen, take_time
from tests.isolate.notebook import notebook
from tests.machines import machine_of
from tests.magic.shell import cells
from tests.processes import on
from tests.sizes import GIB
from tests.tf.on_machine import here
from tfgpu_magic.frameworks.tensorflow import devices
from tfgpu_magic.insight.why.answer import NONE
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x8GiB")

OTHERS = {
    "another error": "1 / 0",
    "one that the cell has caught": f"try:\n    {RAISES}\nexcept tf.errors.ResourceExhaustedError:\n    pass",
    "one that came up while that was handled": (
        f"try:\n    {RAISES}\nexcept tf.errors.ResourceExhaustedError:\n    1 / 0"
    ),
    "SQLite's": "import sqlite3; raise sqlite3.OperationalError('out of memory')",
    "the machine's own memory": "raise MemoryError('out of memory')",
    "a framework that uses no GPU here": "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB.')",
    "another library's": "raise RuntimeError('Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY')",
    "a mistake in a line": "%tf_gpu limit 1",
    "one of a thread": f"import threading\ndef f():\n    {RAISES}\nt = threading.Thread(target=f); t.start(); t.join()",
    "one whose own code fails": "class Mute(Exception):\n    def __str__(self): 1 / 0\nraise Mute()",
}


@on("1x8GiB")
def test_other_errors_are_left_alone() -> None:
    (*others, nothing), found = seen(AWAKE, *OTHERS.values(), "%tf_gpu why")

    assert "Error in callback" not in "".join(one.text for one in others)
    assert found is None
    assert nothing.value == str(NONE)


@on("1x8GiB")
def test_it_is_below_an_error_that_was_raised_from_one() -> None:
    chained = f"try:\n    {RAISES}\nexcept tf.errors.OpError as error:\n    raise ValueError('failed') from error"
    shown, found = failed("%tf_gpu growth", AWAKE, chained)

    assert shown.error == "ValueError"
    assert shown.text.index("ValueError: failed") < shown.text.index("Out of GPU memory")
    assert found.shortage.size == 2 * GIB


@on("1x8GiB")
def test_it_is_below_a_traceback_that_is_shown_within_a_cell_and_once(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import tensorflow as tf\n{RAISES}\n")
    nested = f"get_ipython().run_cell({RAISES!r}); print('after')"

    _, ran, freed, other, inner = cells(AWAKE, f"%run {script}", "%tf_gpu free", "print('next')", nested)

    assert "Error in callback" not in freed.text  # it has let go of the last error
    assert (ran.error, other.text, inner.error) == ("", "next\n", "")  # IPython has shown the error, and gone on
    assert ran.text.index("ResourceExhaustedError") < ran.text.index("Out of GPU memory")
    assert inner.text.count("Out of GPU memory") == 1


@on("1x8GiB")
def test_a_cell_that_was_interrupted_while_it_awaited_has_no_result() -> None:
    """What ipykernel does at its end."""
    cells("import tensorflow as tf")
    shell = InteractiveShell.instance()
    with capture_output() as heard:
        shell.events.trigger("pre_run_cell", SimpleNamespace(raw_cell="await later(tf.zeros(3))"))
        shell.user_ns["tf"].zeros(3)
        shell.events.trigger("post_run_cell", None)

    assert heard.stdout + heard.stderr == ""
    assert devices.since == "since a cell (await later(tf.zeros(3)))"


@on("1x8GiB")
def test_it_keeps_nothing_of_the_error() -> None:
    shell: Any = InteractiveShell.instance(colors="nocolor")
    function = f"def fail():\n    global ref\n    thing = Thing()\n    ref = weakref.ref(thing)\n    {RAISES}"
    shown = cells(AWAKE, f"import weakref\nclass Thing: pass\n{function}", "fail()", "%tf_gpu why")
    assert ["Out of GPU memory" in one.text for one in shown[-2:]] == [True, True]
    assert shell.user_ns["ref"]() is not None  # IPython keeps its traceback

    shell.run_cell("pass")  # the last result is another
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    traceback = shell.InteractiveTB
    traceback.tb = traceback.etype = traceback.value = traceback.evalue = None
    gc.collect()

    assert shell.user_ns["ref"]() is None


DEFECT = RuntimeError("a defect of ours")


@pytest.mark.parametrize("where", ["explaining._read_gpus", "errors.shortage", "explaining.display"])
@on("1x8GiB")
def test_a_defect_of_ours_is_not_seen(where: str) -> None:
    take_time()
    with mock.patch(f"tfgpu_magic.insight.why.{where}", side_effect=DEFECT):
        *_, shown = cells(AWAKE, RAISES)

    assert shown.error == "ResourceExhaustedError"
    assert "defect" not in shown.text
    assert "Out of GPU memory" not in shown.text


@on("1x8GiB")
def test_a_trial_that_fails_leaves_its_way_out() -> None:
    with mock.patch("tfgpu_magic.engine.engine.foresee", side_effect=DEFECT):
        shown, found = failed("%tf_gpu limit 1GiB", AWAKE, RAISES)

    assert "Out of GPU memory" in shown.text
    assert [way.kind for way in found.remedies] == ["isolate", "smaller"]


@on("1x8GiB")
def test_a_driver_that_hangs_is_not_waited_for() -> None:
    cells("%tf_gpu limit 1GiB", AWAKE)
    here().hang("nvmlDeviceGetMemoryInfo", 60)

    (shown,) = cells(RAISES)

    assert "2 GiB did not fit into TensorFlow's pool on GPU:0, which is limited to 1 GiB" in shown.text


@on("1x8GiB")
def test_a_setting_leaves_it_out_and_the_word_answers_still() -> None:
    few = "import tfgpu_magic.insight.objects.walk; tfgpu_magic.insight.objects.walk.MOST = 1; x = [[tf.zeros(2**20)]]"
    off = f"%config TfGpuMagics.why = False\n{few}"
    lines = (AWAKE, off, RAISES, "%tf_gpu measure --fit", "%tf_gpu why", "%unload_ext tfgpu_magic", RAISES)

    shown = cells(*lines)

    assert [one.text.count("Out of GPU memory") for one in shown] == [0, 0, 0, 0, 1, 0, 0]
    assert "A cell asked for 2 GiB and did not get them" in shown[3].value
    assert "more objects than were looked through" in shown[4].text


@on("1x8GiB")
def test_python_asks_for_it_too() -> None:
    handled = "except tf.errors.OpError as error:\n    print(tfgpu_magic.why(error))"
    ask = f"import tfgpu_magic\ntry:\n    {RAISES}\n{handled}"
    none = "print(tfgpu_magic.why(ValueError()), tfgpu_magic.why().explanation.shortage.size)"

    *_, asked, other = cells("%tf_gpu limit 1GiB", AWAKE, ask, none)

    assert "Out of GPU memory: 2 GiB did not fit" in asked.text
    assert other.text.strip() == f"None {2 * GIB}"


def test_in_a_notebook_it_comes_after_the_error_and_restarts_are_lines_of_it(machine: Machine, tmp_path: Path) -> None:
    patient = "from tfgpu_magic.insight.why import explaining; explaining.TRIAL_TIMEOUT = 60"
    with notebook(machine, tmp_path) as book:
        book.run(patient)
        ran = book.run(f"%tf_gpu limit 1GiB\n{AWAKE}\n{RAISES}")

    kinds = [kind for kind, _ in ran.messages if kind in ("error", "display_data")]
    (told,) = (data["text/plain"] for data in ran.shown() if data["text/plain"].startswith("Out of GPU memory"))
    assert kinds[-2:] == ["error", "display_data"]
    assert ran.error["ename"] == "ResourceExhaustedError"
    assert "GPU:0 by allocator GPU_0_bfc" in ran.error["evalue"]
    assert "  %tf_gpu limit 3.1GiB --restart   " in told
