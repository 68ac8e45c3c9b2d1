"""`%tf_gpu` in a real IPython, on a simulated machine."""

from __future__ import annotations

import pytest

from tests.magic.shell import Seen, cells, last, loading
from tests.processes import run
from tfgpu_magic.simgpu import Machine


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("grwoth", "Did you mean 'growth'?"),
        ("statsu", "Did you mean 'status'?"),
        ("limit", "A limit of how much?"),
        ("limit 2048", "2048MiB, as TensorFlow counts, or 2048GiB"),
        ("limit 0.4", "40% (of the GPU), or 0.4GiB"),
        ("limit 2GiB --gorw", "Did you mean '--grow'?"),
        ("limit 7=1GiB", "There is no GPU 7 here; there are GPUs 0 and 1."),
        ("limit 100GiB", "more than the 8 GiB it has"),
        ("plan limit 100GiB", "more than the 8 GiB it has"),
        ("code limit", "A limit of how much?"),
        ("pick 3", "3 GPUs cannot be had now; 2 can."),
        ("visible 0,0", "named twice"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_without_a_traceback_and_stops_the_run(line: str, told: str) -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, last, f"%tf_gpu {line}")

    assert told in seen.text
    assert "Traceback" not in seen.text
    assert seen.error == "UsageError"


@pytest.mark.parametrize("line", ["", "status", "limit 1GiB", "plan growth", "code growth", "env growth", "default"])
def test_every_answer_has_a_text_and_html(line: str) -> None:
    with Machine.create("2x8GiB") as machine:
        text, html = run(machine, _both_forms, f"%tf_gpu {line}")

    assert text
    assert not text.startswith("<")
    assert html.startswith("<")


def test_plan_code_and_env_do_nothing() -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(
            machine, last, "%tf_gpu plan limit 1GiB", "%tf_gpu code split 2", "%tf_gpu env growth", "%tf_gpu plan"
        )

    assert seen.value.startswith("Nothing is asked")


def test_too_late_names_the_cell_that_was_too_early() -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(
            machine,
            last,
            "import tensorflow as tf",
            "# a model\nmodel = tf.Variable(1.0)\nmodel.assign(2.0)",
            "x = 1",
            "%tf_gpu limit 1GiB",
        )

    assert "since In [3] (model = tf.Variable(1.0))" in seen.text
    assert "%tf_gpu limit 1GiB --restart" in seen.text


def test_too_late_in_the_same_cell_names_that_cell() -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, last, "import tensorflow as tf\nx = tf.constant(1)\n%tf_gpu limit 1GiB")

    assert "since this cell (x = tf.constant(1))" in seen.text


def test_the_first_cell_is_told_from_later_ones_also_when_it_fails() -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(
            machine,
            last,
            "import tensorflow as tf\nx = tf.constant(1)\nraise KeyError",
            "y = tf.constant(2)",
            "%tf_gpu growth",
        )

    assert "since In [2] (x = tf.constant(1))" in seen.text


def test_after_a_first_op_without_room_tensorflow_is_let_alone() -> None:
    with Machine.create("1x8GiB") as machine:
        machine.add_neighbour("7.8GiB@0")
        seen: Seen = run(machine, last, "import tensorflow as tf\nx = tf.constant(1)", "%tf_gpu growth")

    assert "may hang for good if it is tried again" in seen.text


def test_restart_without_a_server_says_so() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, "import tensorflow as tf\nx = tf.constant(1)", "%tf_gpu growth --restart")

    assert "This is no Jupyter kernel" in seen.text
    assert seen.error == "UsageError"


def test_restart_applies_at_once_where_it_is_not_too_late() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, "%tf_gpu growth --restart")

    assert seen.value.startswith("`growth` is in force")


def test_help_comes_from_the_grammar() -> None:
    with Machine.create("1x8GiB") as machine:
        text: str = run(machine, _help)

    assert "limit 0=1GiB 1=4GiB 2=25%" in text
    assert "a memory limit on every visible GPU" in text
    assert "--restart" in text


@pytest.mark.parametrize(
    ("line", "offered", "withheld"),
    [
        ("%tf_gpu ", ["growth", "limit", "status", "plan"], ["--grow"]),
        ("%tf_gpu gr", ["growth"], ["limit"]),
        ("tf_gpu li", ["limit"], ["growth"]),
        ("%tf_gpu visible ", ["0", "1", "all", "none"], ["2"]),
        ("%tf_gpu visible 0,", ["1"], ["0", "2"]),
        ("%tf_gpu limit ", ["0=", "1=", "--grow", "--restart"], ["--gpu"]),
        ("%tf_gpu limit 2GiB --g", ["--grow"], ["--gpu"]),
        ("%tf_gpu split 2 --gpu ", ["0", "1"], ["--grow"]),
        ("%tf_gpu plan li", ["limit"], ["plan"]),
        ("%tf_gpu pick; li", ["limit"], ["list"]),
        ("%tf_gpu limit 0=", ["2GiB", "50%"], ["abs", "0="]),
        ("%tf_gpu limit 2GiB --", ["--grow", "--restart"], ["--abs"]),
        ("%tf_gpu code spl", ["split"], []),
    ],
)
def test_tab_completes_words_flags_and_gpu_numbers(line: str, offered: list[str], withheld: list[str]) -> None:
    with Machine.create("2x8GiB") as machine:
        matches: list[str] = run(machine, _complete, line)

    assert set(offered) <= set(matches)
    assert not set(withheld) & set(matches)


@pytest.mark.parametrize(
    ("env", "configured", "asked"),
    [
        ({"TFGPU_POLICY": "limit 1GiB"}, "", "limit 1GiB"),
        ({}, "growth", "growth"),
        ({"TFGPU_POLICY": "limit 1GiB"}, "growth", "limit 1GiB"),
    ],
)
def test_an_administrators_policy_is_applied_when_the_extension_is_loaded(
    env: dict[str, str], configured: str, asked: str
) -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, _load_with, configured, env=env)

    assert f"`{asked}`, from " in seen.text
    assert f"`{asked}`" in seen.value


@pytest.mark.parametrize("policy", ["nonsense", "limit 100GiB"])
def test_a_bad_policy_from_outside_is_told_and_breaks_nothing(policy: str) -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, _load_with, "", env={"TFGPU_POLICY": policy})

    assert f"`{policy}`, from $TFGPU_POLICY, is NOT in force." in seen.text
    assert "Traceback" not in seen.text
    assert seen.value.startswith("Nothing is asked")


def test_the_extension_can_be_unloaded_and_loaded_again() -> None:
    with Machine.create("1x8GiB") as machine:
        gone, back = run(machine, _unload_and_load)

    assert "not found" in gone.text
    assert back.error == ""


def _both_forms(line: str) -> tuple[str, str]:
    seen = cells(line)[0]
    return seen.value, seen.html


def _help() -> str:
    from IPython.core.interactiveshell import InteractiveShell

    cells()
    return str(InteractiveShell.instance().magics_manager.magics["line"]["tf_gpu"].__doc__)


def _complete(line: str) -> list[str]:
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    cells()
    with provisionalcompleter():
        return [match.text for match in InteractiveShell.instance().Completer.completions(line, len(line))]


def _load_with(configured: str) -> Seen:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    InteractiveShell.instance(config=Config({"TfGpuMagics": {"policy": configured}}) if configured else None)
    loaded, plan = loading("%tf_gpu plan")
    return Seen(loaded.text, plan.value, plan.error)


def _unload_and_load() -> tuple[Seen, Seen]:
    _, gone, _, back = cells("%unload_ext tfgpu_magic", "%tf_gpu plan", "%load_ext tfgpu_magic", "%tf_gpu plan")
    return gone, back


@pytest.mark.parametrize(
    "cell", ["for _ in range(2):\n    %tf_gpu limit 1GiB", "%tf_gpu limit 1GiB\nx = 1", "%tf_gpu limit 1GiB"]
)
def test_the_answer_is_seen_wherever_in_a_cell_it_is_asked(cell: str) -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, cell)

    assert "`limit 1GiB` is in force" in seen.text


def test_plan_tells_what_a_restart_would_do_when_it_is_too_late() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, "import tensorflow as tf\nx = tf.constant(1)", "%tf_gpu plan limit 7GiB")

    assert seen.value.startswith("TensorFlow is already using the GPUs")
    assert "After a restart, `limit 7GiB` would do this:" in seen.value
    assert "7.9 GiB" in seen.value  # what this kernel holds is free then


def test_a_kernel_is_not_given_up_for_words_that_cannot_be_had() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, "import tensorflow as tf\nx = tf.constant(1)", "%tf_gpu limit 9GiB --restart")

    assert "more than the 8 GiB it has" in seen.text


@pytest.mark.parametrize(
    "line", ["growth; limit 2GiB", "limit 2GiB; growth", "visible 0; pick", "limit 0=1GiB; limit 1GiB"]
)
def test_words_of_one_line_that_undo_each_other_are_refused(line: str) -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, last, f"%tf_gpu {line}")

    assert "would undo" in seen.text


def test_words_that_replace_earlier_ones_say_so() -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, last, "%tf_gpu limit 2GiB", "%tf_gpu growth")

    assert "`limit 2GiB` no longer counts." in seen.text
