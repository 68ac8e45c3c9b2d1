"""What `%tf_gpu` answers in a real IPython, on a simulated machine: text, HTML, code, help and mistakes.

The sentences are in `tests/transcript.txt`; here is what it does not have, and that a mistake stops a run of cells.
"""

from __future__ import annotations

import os

import pytest

from tests.magic.cells import Cells, in_a_process
from tests.magic.shell import Seen, cells, each
from tests.processes import run
from tests.tf.on_machine import held
from tfgpu_magic.simgpu import Machine

LINES = ["", "status", "limit 1GiB", "plan growth", "code growth", "env growth", "default"]
CODE = [("code limit 1GiB", "python"), ("env growth", "sh")]
HELP = ["help", "--help", "-h"]
PARK, UNPARK = (f"Write `%tf_gpu {word}` or " for word in ("park", "unpark"))
MISTAKES = [
    ("statsu", "Did you mean 'status'?"),
    ("top --restart", "`top` sets nothing"),
    ("growth; gc", "'gc' is not a command of %tf_gpu. `%tf_gpu free` lets go of what nobody needs"),
    *(
        (f"park {rest}", f"`park {rest}` is not understood. {PARK}")
        for rest in ("--when-needed", "--auto 20m eval.ipynb")
    ),
    ("park --to disk", f"'park' has no flag '--to'. Did you mean '--auto'? {PARK}"),
    ("unpark eval.ipynb", f"`unpark eval.ipynb` cannot be done. {UNPARK}"),
    ("unpark --without-gpu", f"--without-gpu needs NAME. {UNPARK}"),
    ("park --auto", f"--auto needs TIME. {PARK}"),
    ("park --auto 20", "20 of what? Write 20s or 20m."),
    ("checkpoint", "`%tf_gpu park` moves this notebook's variables and tensors to host memory until its next cell."),
    ("growth; park", "`park` is no policy: it stands alone"),
]
"""Lines, each with what it is told; the grammar has more of them."""


@pytest.fixture(scope="module")
def answers() -> dict[str, Seen]:
    """What each line answers: one process for all of them."""
    found: dict[str, Seen] = run(
        "2x8GiB", each, [f"%tf_gpu {line}" for line in (*LINES, *(line for line, _ in CODE + MISTAKES), *HELP)]
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


SCENES = {
    "an answer is seen also in a loop": Cells(("for _ in range(2):\n    %tf_gpu limit 1GiB", "takes effect when")),
    "and amid a cell": Cells(("%tf_gpu limit 1GiB\nx = 1", "`limit 1GiB` takes effect when")),
    "to drop all can be planned": Cells("%tf_gpu growth", ("%tf_gpu plan default", "`default` would do this:")),
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_what_is_read_under_each_cell(scene: Cells) -> None:
    scene.play(in_a_process("2x8GiB"))


def test_without_a_driver_a_limit_is_not_called_in_force() -> None:
    no_effect = "`limit 2GiB` has no effect here: TensorFlow sees no GPU."
    here = Cells(
        ("%tf_gpu limit 2GiB", no_effect), ("%tf_gpu", no_effect), never="In force", env={"LD_LIBRARY_PATH": ""}
    )

    here.play(in_a_process(None))


def test_a_line_that_is_interrupted_shows_no_frame_of_ours() -> None:
    hang = "from tfgpu_magic.notebook.words import status\ndef hang(_): raise KeyboardInterrupt\nstatus.run = hang"
    _, interrupted = run(None, cells, hang, "%tf_gpu status")

    assert (interrupted.error, interrupted.text) == ("KeyboardInterrupt", "KeyboardInterrupt: %tf_gpu status\n")


def test_what_does_not_fit_any_more_is_a_warning() -> None:
    seen: list[Seen] = run("1x8GiB", _crowded)

    assert "Warning: it does not fit any more. GPU 0: " in seen[-1].text
    assert "<strong>Warning:</strong>" in seen[-1].html


def _crowded() -> list[Seen]:
    before = cells("%tf_gpu limit 4GiB")
    machine = Machine.current()
    assert machine is not None
    machine.add_neighbour("5GiB@0")
    return [*before, *cells("%tf_gpu plan")]


def test_a_question_mark_shows_the_help_in_80_columns() -> None:
    asked, page, help_ = run("1x8GiB", _ask, env={"TERM": "dumb"})  # which has no pager

    assert asked.error == ""
    assert "limit 0=1GiB 1=4GiB 2=25%" in page
    assert "Docstring:" in page
    assert "--restart" in help_
    assert max(map(len, help_.splitlines())) <= 80


def _ask() -> tuple[Seen, str, str]:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    with capture_output() as heard:
        (asked,) = cells("%tf_gpu?")
    inspected = InteractiveShell.instance().object_inspect("%tf_gpu")  # type: ignore[no-untyped-call]  # IPython's
    return asked, asked.text + heard.stdout, str(inspected["docstring"])


def test_plan_code_and_env_change_neither_environment_nor_gpus() -> None:
    before, after, sizes, plan = run("2x8GiB", _only_asked)

    assert after == before
    assert sizes == [0, 0]
    assert plan.startswith("No policy is set")


def _only_asked() -> tuple[dict[str, str], dict[str, str], list[int], str]:
    before = dict(os.environ)
    lines = ("plan limit 1GiB", "code split 2", "env visible 1; growth", "plan", "default")
    seen = cells(*(f"%tf_gpu {line}" for line in lines))
    return before, dict(os.environ), held(), seen[-2].value + seen[-1].value
