"""`%tf_gpu` after TensorFlow's first operation: which cell was too early, and what is free after a restart.

`tests/transcript.txt` has the words: too late in a notebook, a session and the same cell, and where there was no room.
"""

from __future__ import annotations

from tests.magic.cells import Cells, in_a_process
from tests.magic.shell import shown
from tests.processes import run
from tfgpu_magic.simgpu import Machine

USED = "import tensorflow as tf\nx = tf.constant(1)"
SEVEN = "%tf_gpu plan limit 7GiB", "After a restart, `limit 7GiB` would do this:"


def test_too_late_names_the_cell_that_was_too_early_and_what_a_restart_would_do() -> None:
    late = "%tf_gpu limit 1GiB", "since In [4] (model = tf.Variable(1.0))", "%tf_gpu limit 1GiB  "
    too_much = "%tf_gpu limit 9GiB --restart", "more than the 8 GiB it has"  # no kernel is given up for it
    with Machine.create("2x8GiB") as machine:
        machine.host_pids()  # the driver names this process by another pid, and what it holds is free after a restart
        used = "import tensorflow as tf", "# a model\nmodel = tf.Variable(1.0)\nmodel", "x = 1"
        Cells(*used, late, too_much, SEVEN).play(in_a_process(machine))


def test_what_children_of_this_kernel_hold_is_free_after_a_restart() -> None:
    child = "from tfgpu_magic.simgpu import Machine; child = Machine.current().add_neighbour('6GiB@0')"
    Cells(child, "%tf_gpu growth", USED, SEVEN).play(in_a_process("1x8GiB"))


def test_the_first_cell_is_told_from_later_ones_also_when_it_fails() -> None:
    late = "%tf_gpu growth", "since In [3], so"
    Cells(f"{USED}\nraise KeyError", "y = tf.constant(2)", late).play(in_a_process("2x8GiB"))


def test_what_another_framework_does_in_the_cell_that_loads_the_extension_makes_nothing_too_late() -> None:
    kernel = "get_ipython().parent_header = {'msg_id': '1'}"  # as a kernel's shell has it while a cell runs
    cell = (
        f"{kernel}\n%load_ext tfgpu_magic\nfrom tests.simgpu.on_machine import allocate\nallocate(1)\nimport tensorflow"
    )
    seen: list[str] = run("1x8GiB", shown, cell, "%tf_gpu limit 2GiB", imported=False)

    assert "`limit 2GiB` is in force" in seen[1]


def test_too_late_and_above_the_ceiling_is_one_answer_with_the_line_that_works() -> None:
    lines = "%tf_gpu limit 40%", "%tf_gpu limit 40% --restart", "%tf_gpu plan limit 40%"
    with Machine.create("1x8GiB") as machine:
        env = {"TFGPU_CEILING": "limit 20%"}
        _, _, *seen = run(machine, shown, "%load_ext tfgpu_magic", USED, *lines, env=env, imported=False)

    for text in seen:
        assert "so its memory cannot be changed any more.\nGPU 0: 40% is 3.2 GiB, and the ceiling is" in text
        assert "start it again and say first:   %tf_gpu limit 20% " in text
        assert "%%tf_gpu isolate limit 20% " in text
        assert "%tf_gpu limit 40%" not in text


def test_too_late_for_what_no_restart_gives_says_so_and_offers_none() -> None:
    with Machine.create("1x8GiB") as machine:
        *_, text = run(machine, shown, "%load_ext tfgpu_magic", USED, "%tf_gpu limit 7=1GiB", imported=False)

    assert text.endswith("so its memory cannot be changed any more.\nThere is no GPU 7 here; there is GPU 0.\n")
