"""Where `%tf_gpu why` is shown by itself, and where not: below errors in real IPythons and in a notebook."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.insight.why_on_machine import AWAKE, RAISES, interrupted, lets_go, seen, with_a_defect
from tests.isolate.notebook import notebook
from tests.machines import machine_of
from tests.magic.shell import Seen, cells
from tests.processes import run
from tests.sizes import GIB
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


def test_other_errors_are_left_alone(machine: Machine) -> None:
    (*others, nothing), found = run(machine, seen, AWAKE, *OTHERS.values(), "%tf_gpu why")

    assert "Error in callback" not in "".join(one.text for one in others)
    assert found is None
    assert nothing.value == NONE


def test_it_is_below_an_error_that_was_raised_from_one(machine: Machine) -> None:
    chained = f"try:\n    {RAISES}\nexcept tf.errors.OpError as error:\n    raise ValueError('failed') from error"
    (*_, failed), found = run(machine, seen, "%tf_gpu growth", AWAKE, chained)

    assert failed.error == "ValueError"
    assert failed.text.index("ValueError: failed") < failed.text.index("Out of GPU memory")
    assert found.shortage.size == 2 * GIB


def test_it_is_below_a_traceback_that_is_shown_within_a_cell_and_once(machine: Machine, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import tensorflow as tf\n{RAISES}\n")
    nested = f"get_ipython().run_cell({RAISES!r}); print('after')"
    *_, ran, freed, other, inner = run(machine, cells, AWAKE, f"%run {script}", "%tf_gpu free", "print('next')", nested)

    assert "Error in callback" not in freed.text  # it has let go of the last error
    assert (ran.error, other.text, inner.error) == ("", "next\n", "")  # IPython has shown the error, and gone on
    assert ran.text.index("ResourceExhaustedError") < ran.text.index("Out of GPU memory")
    assert inner.text.count("Out of GPU memory") == 1


def test_a_cell_that_was_interrupted_while_it_awaited_has_no_result(machine: Machine) -> None:
    assert run(machine, interrupted) == ("", "since a cell (await later(tf.zeros(3)))")


def test_it_keeps_nothing_of_the_error(machine: Machine) -> None:
    assert run(machine, lets_go) == (True, False)


@pytest.mark.parametrize(
    "where",
    [
        "tfgpu_magic.insight.why.explaining:_look",
        "tfgpu_magic.insight.why.errors:shortage",
        "tfgpu_magic.insight.why.explaining:display",
    ],
)
def test_a_defect_of_ours_is_not_seen(machine: Machine, where: str) -> None:
    *_, failed = run(machine, with_a_defect, where, AWAKE, RAISES)

    assert failed.error == "ResourceExhaustedError"
    assert "defect" not in failed.text
    assert "Out of GPU memory" not in failed.text


def test_a_driver_that_hangs_is_not_waited_for(machine: Machine) -> None:
    hang = "from tfgpu_magic.simgpu import Machine; Machine.current().hang('nvmlDeviceGetMemoryInfo', 60)"
    try:
        *_, failed = run(machine, cells, "%tf_gpu limit 1GiB", AWAKE, hang, RAISES)
    finally:
        machine.clear_faults()

    assert "Out of GPU memory" in failed.text
    assert "2 GiB did not fit into TensorFlow's pool on GPU:0, which is limited to 1 GiB" in failed.text


def test_a_trial_that_fails_leaves_its_way_out(machine: Machine) -> None:
    *_, failed = run(machine, with_a_defect, "tfgpu_magic.engine.engine:foresee", "%tf_gpu limit 1GiB", AWAKE, RAISES)

    assert "Out of GPU memory" in failed.text
    assert "%%tf_gpu isolate growth" in failed.text
    assert "%tf_gpu limit" not in failed.text.partition("Out of GPU memory")[2]


def test_a_setting_leaves_it_out_and_the_word_answers_still(machine: Machine) -> None:
    few = "import tfgpu_magic.insight.objects.walk; tfgpu_magic.insight.objects.walk.MOST = 1; x = [[tf.zeros(2**20)]]"
    off = f"%config TfGpuMagics.why = False\n{few}"
    lines = (AWAKE, off, RAISES, "%tf_gpu measure --fit", "%tf_gpu why", "%unload_ext tfgpu_magic", RAISES)
    shown: list[Seen] = run(machine, cells, *lines)

    assert [one.text.count("Out of GPU memory") for one in shown] == [0, 0, 0, 0, 1, 0, 0]
    assert "A cell asked for 2 GiB and did not get them" in shown[3].value
    assert "more objects than were looked through" in shown[4].text


def test_python_asks_for_it_too(machine: Machine) -> None:
    handled = "except tf.errors.OpError as error:\n    print(tfgpu_magic.why(error))"
    ask = f"import tfgpu_magic\ntry:\n    {RAISES}\n{handled}"
    none = "print(tfgpu_magic.why(ValueError()), tfgpu_magic.why().explanation.shortage.size)"
    *_, asked, other = run(machine, cells, "%tf_gpu limit 1GiB", AWAKE, ask, none)

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
