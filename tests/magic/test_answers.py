"""What `%tf_gpu` answers in a real IPython, on a simulated machine: text, HTML, code and help."""

from __future__ import annotations

import pytest

from tests.magic.shell import Seen, cells, each, last
from tests.processes import run
from tfgpu_magic.simgpu import Machine

LINES = ["", "status", "limit 1GiB", "plan growth", "code growth", "env growth", "default"]
CODE = [("code limit 1GiB", "python"), ("env growth", "sh")]
HELP = ["help", "--help", "-h"]


@pytest.fixture(scope="module")
def answers() -> dict[str, Seen]:
    """What each line answers: one process for all of them."""
    with Machine.create("2x8GiB") as machine:
        found: dict[str, Seen] = run(
            machine, each, [f"%tf_gpu {line}" for line in (*LINES, *(line for line, _ in CODE), *HELP)]
        )
    return found


@pytest.mark.parametrize("line", LINES)
def test_every_answer_has_a_text_and_html_or_markdown(answers: dict[str, Seen], line: str) -> None:
    seen = answers[f"%tf_gpu {line}"]

    assert seen.value
    assert not seen.value.startswith("<")
    assert seen.html.startswith("<") or seen.markdown.startswith("```")


@pytest.mark.parametrize(("line", "language"), CODE)
def test_code_is_marked_as_what_it_is_so_that_a_front_end_can_highlight_it(
    answers: dict[str, Seen], line: str, language: str
) -> None:
    seen = answers[f"%tf_gpu {line}"]

    assert seen.markdown == f"```{language}\n{seen.value}\n```"
    assert not seen.html


@pytest.mark.parametrize("line", HELP)
def test_help_is_answered(answers: dict[str, Seen], line: str) -> None:
    seen = answers[f"%tf_gpu {line}"]

    assert "limit 0=1GiB 1=4GiB 2=25%" in seen.value
    assert not seen.error


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


def test_without_a_gpu_a_limit_is_not_called_in_force() -> None:
    seen: list[Seen] = run(None, cells, "%tf_gpu limit 2GiB", "%tf_gpu", env={"LD_LIBRARY_PATH": ""})

    assert "`limit 2GiB` has no effect here: TensorFlow sees no GPU." in seen[0].text
    assert "`limit 2GiB` has no effect here: TensorFlow sees no GPU." in seen[1].text
    assert "In force" not in seen[1].text


def test_the_plan_of_default_is_called_that() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, "%tf_gpu growth", "%tf_gpu plan default")

    assert seen.value.startswith("`default` would do this:")


def test_what_does_not_fit_any_more_is_a_warning() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: list[Seen] = run(machine, _crowded)

    assert "Warning: it does not fit any more. GPU 0: " in seen[-1].text
    assert "<strong>Warning:</strong>" in seen[-1].html


def test_help_comes_from_the_grammar_and_has_no_line_that_a_cell_would_break() -> None:
    with Machine.create("1x8GiB") as machine:
        text: str = run(machine, _help)

    assert max(map(len, text.splitlines())) <= 80
    assert "limit 0=1GiB 1=4GiB 2=25%" in text
    assert "a memory limit on every visible GPU" in text
    assert "--restart" in text


def test_the_answer_is_seen_wherever_in_a_cell_it_is_asked() -> None:
    loop = "for _ in range(2):\n    %tf_gpu limit 1GiB"
    with Machine.create("1x8GiB") as machine:
        seen: list[Seen] = run(machine, cells, loop, "%tf_gpu limit 1GiB\nx = 1", "%tf_gpu limit 1GiB")

    assert ["`limit 1GiB` is in force" in one.text for one in seen] == [True] * 3


def test_words_that_replace_earlier_ones_say_so() -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, last, "%tf_gpu limit 2GiB", "%tf_gpu growth")

    assert "This replaces `limit 2GiB`." in seen.text


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
