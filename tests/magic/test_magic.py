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
        ("growth; status", "`status` is no policy: it stands alone"),
        ("plan isolate", "`isolate` is no policy: it stands alone"),
        ("memory", "`%tf_gpu status`"),
        ("code watch", "The live table is `%tf_gpu top`."),
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
def test_every_answer_has_a_text_and_html_or_markdown(line: str) -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, last, f"%tf_gpu {line}")

    assert seen.value
    assert not seen.value.startswith("<")
    assert seen.html.startswith("<") or seen.markdown.startswith("```")


@pytest.mark.parametrize(("line", "language"), [("code limit 1GiB", "python"), ("env growth", "sh")])
def test_code_is_marked_as_what_it_is_so_that_a_front_end_can_highlight_it(line: str, language: str) -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, f"%tf_gpu {line}")

    assert seen.markdown == f"```{language}\n{seen.value}\n```"
    assert not seen.html


def test_code_of_nothing_is_no_more_than_the_import() -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, last, "%tf_gpu code")

    assert seen.value == "import tensorflow as tf"


def test_plan_code_and_env_do_nothing() -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(
            machine, last, "%tf_gpu plan limit 1GiB", "%tf_gpu code split 2", "%tf_gpu env growth", "%tf_gpu plan"
        )

    assert seen.value.startswith("No policy is set")


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
    assert "Leave IPython, start it again and say first:   %tf_gpu limit 1GiB  " in seen.text


def test_in_a_terminal_nothing_is_said_of_notebooks_kernels_and_their_menus() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: list[Seen] = run(
            machine,
            cells,
            "import tensorflow as tf; x = tf.constant(1)",
            "%tf_gpu",
            "%tf_gpu top",
            "%tf_gpu limit 1GiB",
            "%tf_gpu limit 1GiB --restart",
            "%tf_gpu plan limit 1GiB",
        )
    told = "\n".join(one.text for one in seen)

    assert "this session" in told
    assert "This is one look." in seen[2].text
    assert "since In [2] (x = tf.constant(1))" in told
    assert [word for word in ("this notebook", "This notebook", "this kernel", "menu") if word in told] == []
    assert "--restart" not in seen[3].text + seen[4].text


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


def test_where_nothing_can_restart_it_the_way_by_hand_is_told() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, "import tensorflow as tf\nx = tf.constant(1)", "%tf_gpu growth --restart")

    assert "Leave IPython, start it again and say first:   %tf_gpu growth  " in seen.text
    assert seen.error == "UsageError"


def test_restart_applies_at_once_where_it_is_not_too_late() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, "%tf_gpu growth --restart")

    assert seen.value.startswith("`growth` is in force")


def test_without_a_gpu_a_limit_is_not_called_in_force() -> None:
    seen: list[Seen] = run(None, cells, "%tf_gpu limit 2GiB", "%tf_gpu", env={"LD_LIBRARY_PATH": ""})

    assert "`limit 2GiB` has no effect here: TensorFlow sees no GPU." in seen[0].text
    assert "`limit 2GiB` has no effect here: TensorFlow sees no GPU." in seen[1].text
    assert "In force" not in seen[1].text


@pytest.mark.parametrize("line", ["help", "--help", "-h"])
def test_help_is_answered(line: str) -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, f"%tf_gpu {line}")

    assert "limit 0=1GiB 1=4GiB 2=25%" in seen.value
    assert not seen.error


def test_the_help_has_no_line_that_a_cell_would_break() -> None:
    with Machine.create("1x8GiB") as machine:
        text: str = run(machine, _help)

    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("jobs --restart", "`jobs` sets nothing, so --restart has no place beside it."),
        ("status now", "`status` stands alone; 'now' is too much."),
        ("top --restart", "`top` sets nothing"),
        ("--restart", "--restart of what?"),
        ("4gib", "'4gib' is not a word of %tf_gpu. For a limit, write `%tf_gpu limit 4gib`."),
        ("4GiB", "'4GiB' is not a word"),
    ],
)
def test_what_stands_alone_is_said_to(line: str, told: str) -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, f"%tf_gpu {line}")

    assert told in seen.text
    assert seen.error == "UsageError"


def test_the_plan_of_default_is_called_that() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, "%tf_gpu growth", "%tf_gpu plan default")

    assert seen.value.startswith("`default` would do this:")


def test_what_does_not_fit_any_more_is_a_warning() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: list[Seen] = run(machine, _crowded)

    assert "Warning: it does not fit any more. GPU 0: " in seen[-1].text
    assert "<strong>Warning:</strong>" in seen[-1].html


def test_help_comes_from_the_grammar() -> None:
    with Machine.create("1x8GiB") as machine:
        text: str = run(machine, _help)

    assert "limit 0=1GiB 1=4GiB 2=25%" in text
    assert "a memory limit on every visible GPU" in text
    assert "--restart" in text


@pytest.mark.parametrize(
    ("env", "configured", "asked"),
    [
        ({"TFGPU_POLICY": "limit 1GiB"}, "", "limit 1GiB"),
        ({}, "growth", "growth"),
        ({"TFGPU_POLICY": "limit 1GiB"}, "growth", "limit 1GiB"),
    ],
)
def test_an_administrators_policy_holds_when_the_extension_is_loaded_and_nothing_is_said_of_it(
    env: dict[str, str], configured: str, asked: str
) -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, _load_with, configured, env=env)

    assert seen.text == ""
    assert f"`{asked}`" in seen.value


@pytest.mark.parametrize(
    ("policy", "told"), [("nonsense", "is NOT in force: it is not a policy"), ("limit 100GiB", "cannot be had in full")]
)
def test_a_bad_policy_from_outside_is_told_and_falls_to_growth(policy: str, told: str) -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, _load_with, "", env={"TFGPU_POLICY": policy})

    assert f"`{policy}`, from $TFGPU_POLICY, {told}" in seen.text
    assert "Traceback" not in seen.text
    assert seen.value.startswith("`growth` is in force")


def test_an_empty_variable_switches_configuration_off() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, _load_with, "growth", env={"TFGPU_POLICY": ""})

    assert seen.value.startswith("No policy is set")


def test_to_load_the_extension_again_leaves_what_was_said_meanwhile() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(
            machine,
            last,
            "%tf_gpu limit 1GiB",
            "%reload_ext tfgpu_magic",
            "%tf_gpu plan",
            env={"TFGPU_POLICY": "growth"},
        )

    assert seen.value.startswith("`limit 1GiB`")


@pytest.mark.parametrize("lines", [(), ("%reload_ext tfgpu_magic",)])
def test_a_policy_that_is_configured_in_a_cell_is_applied_there(lines: tuple[str, ...]) -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, *lines, "%config TfGpuMagics.policy = 'limit 1GiB'", "%tf_gpu plan")
        wrong: Seen = run(machine, last, "%config TfGpuMagics.policy = 'limti 1GiB'")

    assert seen.value.startswith("`limit 1GiB` is in force")
    assert "'limti' is not a word of %tf_gpu" in wrong.text
    assert "Traceback" not in wrong.text


def test_the_extension_can_be_unloaded_and_loaded_again() -> None:
    with Machine.create("1x8GiB") as machine:
        gone, back = run(machine, _unload_and_load)

    assert "not found" in gone.text
    assert back.error == ""


def _plan_beside_a_child(line: str) -> Seen:
    machine = Machine.current()
    assert machine is not None
    machine.add_neighbour("6GiB@0")  # a process that this one starts
    return last("%tf_gpu growth", "import tensorflow as tf\nx = tf.constant(1)", line)


def _crowded() -> list[Seen]:
    before = cells("%tf_gpu limit 4GiB")
    machine = Machine.current()
    assert machine is not None
    machine.add_neighbour("5GiB@0")
    return [*before, *cells("%tf_gpu plan")]


def _help() -> str:
    from IPython.core.interactiveshell import InteractiveShell

    cells()
    seen = InteractiveShell.instance().object_inspect("%tf_gpu")  # type: ignore[no-untyped-call]  # IPython's
    return str(seen["docstring"])


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

    assert seen.value.startswith("TensorFlow is already using the GPUs in this session")
    assert "After a restart, `limit 7GiB` would do this:" in seen.value
    assert "7.9 GiB" in seen.value  # what this kernel holds is free then


def test_what_this_kernel_holds_is_free_after_a_restart_also_where_the_driver_names_it_by_another_pid() -> None:
    with Machine.create("1x8GiB") as machine:
        machine.host_pids()
        seen: Seen = run(machine, last, "import tensorflow as tf\nx = tf.constant(1)", "%tf_gpu plan limit 7GiB")

    assert "After a restart, `limit 7GiB` would do this:" in seen.value


def test_what_children_of_this_kernel_hold_is_free_after_a_restart() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, _plan_beside_a_child, "%tf_gpu plan limit 7GiB")

    assert "After a restart, `limit 7GiB` would do this:" in seen.value


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

    assert "This replaces `limit 2GiB`." in seen.text
