"""`%tf_gpu` after TensorFlow's first operation: what was too early is named, and what a restart would do is told."""

from __future__ import annotations

from tests.magic.shell import Seen, cells, last, shown
from tests.processes import run
from tfgpu_magic.simgpu import Machine


def test_too_late_names_the_cell_that_was_too_early_and_what_a_restart_would_do() -> None:
    with Machine.create("2x8GiB") as machine:
        machine.host_pids()  # the driver names this process by another pid, and what it holds is free after a restart
        seen: list[Seen] = run(
            machine,
            cells,
            "import tensorflow as tf",
            "# a model\nmodel = tf.Variable(1.0)\nmodel",
            "x = 1",
            "%tf_gpu limit 1GiB",
            "%tf_gpu growth --restart",
            "%tf_gpu limit 9GiB --restart",
            "%tf_gpu plan limit 7GiB",
        )
    late, by_hand, too_much, plan = seen[3:]

    assert "since In [3] (model = tf.Variable(1.0))" in late.text
    assert "Leave IPython, start it again and say first:   %tf_gpu limit 1GiB  " in late.text
    assert "Leave IPython, start it again and say first:   %tf_gpu growth  " in by_hand.text
    assert by_hand.error == "UsageError"
    assert "more than the 8 GiB it has" in too_much.text  # no kernel is given up for what cannot be had
    assert plan.value.startswith("TensorFlow is already using the GPUs in this session")
    assert "After a restart, `limit 7GiB` would do this:" in plan.value
    assert "7.9 GiB" in plan.value


def test_too_late_in_the_same_cell_names_that_cell() -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, last, "import tensorflow as tf\nx = tf.constant(1)\n%tf_gpu limit 1GiB")

    assert "since this cell (x = tf.constant(1))" in seen.text


def test_what_another_framework_does_in_the_cell_that_loads_the_extension_makes_nothing_too_late() -> None:
    kernel = "get_ipython().parent_header = {'msg_id': '1'}"  # as a kernel's shell has it while a cell runs
    cell = (
        f"{kernel}\n%load_ext tfgpu_magic\nfrom tests.simgpu.on_machine import allocate\nallocate(1)\nimport tensorflow"
    )
    with Machine.create("1x8GiB") as machine:
        seen: list[str] = run(machine, shown, cell, "%tf_gpu limit 2GiB", imported=False)

    assert "`limit 2GiB` is in force" in seen[1]


def test_the_first_cell_is_told_from_later_ones_also_when_it_fails() -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(
            machine,
            last,
            "import tensorflow as tf\nx = tf.constant(1)\nraise KeyError",
            "y = tf.constant(2)",
            "%tf_gpu growth",
        )

    assert "since In [2], so" in seen.text


def test_after_a_first_op_without_room_tensorflow_is_let_alone() -> None:
    with Machine.create("1x8GiB") as machine:
        machine.add_neighbour("7.8GiB@0")
        seen: Seen = run(machine, last, "import tensorflow as tf\nx = tf.constant(1)", "%tf_gpu growth")

    assert "may hang for good if it is tried again" in seen.text


def test_restart_applies_at_once_where_it_is_not_too_late() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, "%tf_gpu growth --restart")

    assert seen.value.startswith("`growth` is in force")


def _plan_beside_a_child(line: str) -> Seen:
    machine = Machine.current()
    assert machine is not None
    machine.add_neighbour("6GiB@0")  # a process that this one starts
    return last("%tf_gpu growth", "import tensorflow as tf\nx = tf.constant(1)", line)


def test_what_children_of_this_kernel_hold_is_free_after_a_restart() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, _plan_beside_a_child, "%tf_gpu plan limit 7GiB")

    assert "After a restart, `limit 7GiB` would do this:" in seen.value
