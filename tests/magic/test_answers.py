"""What `%tf_gpu` answers in a real IPython, on a simulated machine: text, HTML, code, help and mistakes."""

from __future__ import annotations

import os

import pytest

from tests.magic.shell import Seen, cells, each, last
from tests.processes import run
from tests.tf.on_machine import held
from tfgpu_magic.simgpu import Machine

LINES = ["", "status", "limit 1GiB", "plan growth", "code growth", "env growth", "default"]
CODE = [("code limit 1GiB", "python"), ("env growth", "sh")]
HELP = ["help", "--help", "-h"]
MISTAKES = [
    ("statsu", "Did you mean 'status'?"),
    ("growth; status", "`status` is no policy: it stands alone"),
    ("plan isolate", "`isolate` is no policy: it stands alone"),
    ("memory", "`%tf_gpu status`"),
    ("code watch", "The live table is `%tf_gpu top`."),
    ("limit 7=1GiB", "There is no GPU 7 here; there are GPUs 0 and 1."),
    ("limit 100GiB", "more than the 8 GiB it has"),
    ("plan limit 100GiB", "more than the 8 GiB it has"),
    ("pick 3", "3 GPUs cannot be had now; 2 can."),
    ("jobs --restart", "`jobs` sets nothing, so --restart has no place beside it."),
    ("status now", "`status` stands alone; 'now' is too much."),
    ("top --restart", "`top` sets nothing"),
    ("--restart", "--restart of what?"),
    ("stop", "`%tf_gpu jobs stop 1` ends an isolated cell"),
    ("isolate", "`isolate` stands above a cell. Write `%%tf_gpu isolate [-i NAMES]"),
    ("growth; free", "`free` is no policy: it stands alone"),
    ("release", "'release' is not a word of %tf_gpu. `%tf_gpu free` lets go of what nobody needs"),
    ("growth; gc", "'gc' is not a word of %tf_gpu. `%tf_gpu free` lets go of what nobody needs"),
    *((line, "would undo") for line in ("growth; limit 2GiB", "limit 2GiB; growth", "visible 0; pick")),
    ("limit 0=1GiB; limit 1GiB", "would undo"),
    *(
        (f"park {rest}", f"`park {rest}` is not understood. Write `%tf_gpu park` or ")
        for rest in ("--to disk", "--when-needed", "--auto off --when-needed", "--auto 20m eval.ipynb")
    ),
    *(
        (f"unpark {rest}", f"`unpark {rest}` is not understood. Write `%tf_gpu unpark` or `%tf_gpu unpark --")
        for rest in ("eval.ipynb", "--without-gpu")
    ),
    ("park --auto", "--auto after which time? Write `%tf_gpu park` or "),
    ("park --auto 20", "20 of what? Write 20s or 20m."),
    ("checkpoint", "`%tf_gpu park` moves this notebook's variables and tensors to host memory until its next cell."),
    ("growth; park", "`park` is no policy: it stands alone"),
]
"""Lines, each with what it is told; the grammar has more of them."""


@pytest.fixture(scope="module")
def answers() -> dict[str, Seen]:
    """What each line answers: one process for all of them."""
    with Machine.create("2x8GiB") as machine:
        found: dict[str, Seen] = run(
            machine, each, [f"%tf_gpu {line}" for line in (*LINES, *(line for line, _ in CODE + MISTAKES), *HELP)]
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


@pytest.mark.parametrize(("line", "told"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_told_in_a_sentence_without_a_traceback_and_stops_the_run(
    answers: dict[str, Seen], line: str, told: str
) -> None:
    seen = answers[f"%tf_gpu {line}"]

    assert told in seen.text
    assert "Traceback" not in seen.text
    assert seen.error == "UsageError"


def test_code_of_nothing_is_no_more_than_the_import() -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, last, "%tf_gpu code")

    assert seen.value == "import tensorflow as tf"


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


def test_a_line_that_is_interrupted_shows_no_frame_of_ours() -> None:
    hang = "from tfgpu_magic.notebook.words import status\ndef hang(_): raise KeyboardInterrupt\nstatus.answer = hang"
    _, interrupted = run(None, cells, hang, "%tf_gpu status")

    assert (interrupted.error, interrupted.text) == ("KeyboardInterrupt", "KeyboardInterrupt: %tf_gpu status\n")


def test_where_a_variable_hides_all_gpus_words_and_their_plan_say_so() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: list[Seen] = run(
            machine, cells, "%tf_gpu plan limit 2GiB", "%tf_gpu limit 2GiB", env={"CUDA_VISIBLE_DEVICES": "-1"}
        )

    assert seen[0].text.startswith("`limit 2GiB` would have no effect here: TensorFlow sees no GPU.\n")
    assert seen[1].text.startswith("`limit 2GiB` has no effect here: TensorFlow sees no GPU.\n")
    assert all("CUDA_VISIBLE_DEVICES='-1' hides every GPU." in one.text for one in seen)


def test_a_lost_gpu_is_not_called_hidden() -> None:
    with Machine.create("1x8GiB") as machine:
        machine.lose(0)
        seen: list[Seen] = run(machine, cells, "%tf_gpu plan limit 2GiB", "%tf_gpu limit 2GiB")

    assert all("hides" not in one.text for one in seen)


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        (("%tf_gpu growth", "%tf_gpu plan default"), "`default` would do this:"),
        (("%tf_gpu limit 2GiB", "%tf_gpu growth"), "This replaces `limit 2GiB`."),
        (("for _ in range(2):\n    %tf_gpu limit 1GiB",), "`limit 1GiB` is in force"),
        (("%tf_gpu limit 1GiB\nx = 1",), "`limit 1GiB` is in force"),
    ],
)
def test_an_answer_says_what_is_replaced_and_is_seen_wherever_in_a_cell_it_is_asked(
    lines: tuple[str, ...], part: str
) -> None:
    with Machine.create("1x8GiB") as machine:
        seen: Seen = run(machine, last, *lines)

    assert part in seen.text


def test_what_does_not_fit_any_more_is_a_warning() -> None:
    with Machine.create("1x8GiB") as machine:
        seen: list[Seen] = run(machine, _crowded)

    assert "Warning: it does not fit any more. GPU 0: " in seen[-1].text
    assert "<strong>Warning:</strong>" in seen[-1].html


def _crowded() -> list[Seen]:
    before = cells("%tf_gpu limit 4GiB")
    machine = Machine.current()
    assert machine is not None
    machine.add_neighbour("5GiB@0")
    return [*before, *cells("%tf_gpu plan")]


def test_a_question_mark_shows_the_help_in_80_columns() -> None:
    with Machine.create("1x8GiB") as machine:
        asked, page, help_ = run(machine, _ask, env={"TERM": "dumb"})  # which has no pager

    assert asked.error == ""
    assert "limit 0=1GiB 1=4GiB 2=25%" in page
    assert "Docstring:" in page
    assert "a memory limit on every visible GPU" in " ".join(help_.split())
    assert "--restart" in help_
    assert max(map(len, help_.splitlines())) <= 80


def test_plan_code_and_env_change_neither_environment_nor_gpus() -> None:
    with Machine.create("2x8GiB") as machine:
        before, after, sizes, plan = run(machine, _only_asked)

    assert after == before
    assert sizes == [0, 0]
    assert plan.startswith("No policy is set")
    assert "takes nearly all that is free of each GPU it uses, and a CUDA context on each it sees." in plan


def _ask() -> tuple[Seen, str, str]:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    with capture_output() as heard:
        (asked,) = cells("%tf_gpu?")
    inspected = InteractiveShell.instance().object_inspect("%tf_gpu")  # type: ignore[no-untyped-call]  # IPython's
    return asked, asked.text + heard.stdout, str(inspected["docstring"])


def _only_asked() -> tuple[dict[str, str], dict[str, str], list[int], str]:
    before = dict(os.environ)
    lines = ("plan limit 1GiB", "code split 2", "env visible 1; growth", "plan", "default")
    seen = cells(*(f"%tf_gpu {line}" for line in lines))
    return before, dict(os.environ), held(), seen[-2].value + seen[-1].value
