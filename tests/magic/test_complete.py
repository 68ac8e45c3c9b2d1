"""Tab in a line of ours, in a real IPython and in a kernel, on a simulated machine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.magic.shell import cells
from tests.processes import run
from tests.slack import SLACK
from tfgpu_magic.notebook import complete

LINES = [
    ("%tf_gpu ", ["growth", "limit", "status", "plan"], ["--grow"]),
    ("%tf_gpu gr", ["growth"], ["limit"]),
    ("tf_gpu li", ["limit"], ["growth"]),
    ("%tf_gpu visible ", ["0", "1", "all", "none"], ["2"]),
    ("%tf_gpu visible 0,", ["1"], ["0", "2"]),
    ("%tf_gpu limit ", ["0=", "1=", "--grow", "--gpu", "--restart", "--wait"], ["--cpu"]),
    ("%tf_gpu split 2 --gpu ", ["0", "1"], ["--grow"]),
    ("%tf_gpu plan li", ["limit"], ["plan"]),
    ("%tf_gpu pick; li", ["limit"], ["list"]),
    ("%tf_gpu limit 0=", ["2GiB", "50%"], ["abs", "0="]),
    ("%tf_gpu limit 2GiB --", ["--grow", "--restart"], ["--abs"]),
    ("%tf_gpu pick; limit 2GiB --wait ", ["30m", "2h"], ["--restart", "abs"]),
    ("%tf_gpu status --", [], ["--restart", "--wait"]),
    ("%tf_gpu par", ["park"], ["unpark"]),
    ("%tf_gpu park ", ["--check", "--auto"], ["--restart", "abs"]),
    ("%tf_gpu park --auto ", ["20m", "off"], ["--check", "abs"]),
    ("%tf_gpu park --auto 20m ", ["--when-needed"], ["--auto", "off"]),
    ("%tf_gpu GRO", ["growth"], []),
    ("%tf_gpu jobs ", ["stop"], ["--restart", "abs"]),
    ("%tf_gpu isolate ", ["--warm"], ["--restart", "abs"]),
    ("%tf_gpu plan growth ", ["on", "off"], ["--restart", "abs"]),
    ("%tf_gpu growth on ", [], ["on", "off"]),
    ("%tf_gpu limit 2GiB ", ["0=", "1="], ["2GiB", "25%"]),
    ("%tf_gpu limit 0=1GiB --grow ", ["1=", "2GiB", "25%"], ["0="]),
    ("%tf_gpu split --cpu ", ["2", "4"], ["0="]),
    ("%tf_gpu split 2 ", [], ["2", "4"]),
    ("%tf_gpu visible all ", [], ["all", "none", "0"]),
    ("%tf_gpu pick ", [], ["0", "2GiB"]),
    ("%tf_gpu growth; ", ["limit"], ["status", "top", "abs"]),
    ("%tf_gpu pick --need ", ["2GiB"], ["--restart", "abs"]),
    ("%%tf_gpu ", ["isolate"], ["growth", "abs"]),
    ("%%tf_gpu iso", ["isolate"], ["isolation.ipynb"]),
    ("%tf_gpu measure --", ["--fit", "--as"], ["--restart", "abs"]),
    ("%%tf_gpu measure --fit --", ["--as"], ["--fit", "abs"]),
    ("%tf_gpu track ", ["on", "off"], ["--restart", "abs"]),
    ("%tf_gpu track on --above ", ["2GiB"], ["abs"]),
    ("%%tf_gpu isolate ", ["-i", "-o", "--detach", "limit"], ["--restart", "--warm", "abs"]),
    ("%%tf_gpu isolate --", ["--gpus", "--timeout", "--wait", "--detach"], ["abs", "--restart", "--warm"]),
    ("%%tf_gpu isolate --gpus 1 --", ["--timeout"], ["--gpus", "abs"]),
    ("%%tf_gpu isolate -o x limit 2GiB --", ["--grow", "--detach"], ["-o", "abs"]),
]
"""Lines, each with some of what is offered at their end, and of what is not."""

NOTHING = ["%tf_gpu status ", "%tf_gpu top ", "%tf_gpu jobs stop ", "%tf_gpu lmit "]
"""Lines at whose end nothing may stand."""


@pytest.fixture(scope="module")
def completed() -> dict[str, list[str]]:
    """What is offered at the end of each line: one process for all of them."""
    found: dict[str, list[str]] = run("2x8GiB", _complete_each, [*(line for line, _, _ in LINES), *NOTHING])
    return found


@pytest.mark.parametrize(("line", "offered", "withheld"), LINES, ids=[line for line, _, _ in LINES])
def test_tab_completes_words_flags_and_gpu_numbers(
    completed: dict[str, list[str]], line: str, offered: list[str], withheld: list[str]
) -> None:
    assert set(offered) <= set(completed[line])
    assert not set(withheld) & set(completed[line])


@pytest.mark.parametrize("line", NOTHING)
def test_where_nothing_may_stand_nothing_is_offered(completed: dict[str, list[str]], line: str) -> None:
    assert completed[line] == []


def test_tab_completes_the_names_of_mig_instances() -> None:
    matches = run("1x16GiB:mig=2,8GiB", _complete, "%tf_gpu visible ")

    assert sorted(matches) == ["--restart", "--wait", "0.1", "0.2", "1", "all", "none"]


@pytest.mark.parametrize("line", ["%%tf_gpu isolate -i model,ima", "tf_gpu = ima"])
def test_tab_completes_the_notebooks_names_where_a_cell_sends_them_and_elsewhere_as_ipython(line: str) -> None:
    assert "images" in run("1x8GiB", _complete, line, "images = model = 1")


def test_jupyter_completes_as_ipython_does() -> None:
    reply = run("1x8GiB", _complete_in_a_kernel, "%%tf_gpu isolate --de")

    assert (reply["matches"], reply["cursor_start"]) == (["--detach"], len("%%tf_gpu isolate "))


@pytest.mark.parametrize("line", ["%tf_gpu ", "%gpu "])
def test_what_most_people_want_is_offered_first(line: str) -> None:
    reply = run("1x8GiB", _complete_in_a_kernel, line)

    assert reply["matches"][:7] == ["limit", "growth", "pick", "top", "split", "visible", "default"]


def _complete_each(lines: list[str]) -> dict[str, list[str]]:
    return {line: _complete(line) for line in lines}


def _complete(line: str, *sources: str) -> list[str]:
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    complete.LOOK_TIMEOUT = 10.0 * SLACK  # what is offered is tested here, and not how soon
    cells(*sources)
    with provisionalcompleter():
        return [match.text for match in InteractiveShell.instance().Completer.completions(line, len(line))]


def _complete_in_a_kernel(line: str) -> dict[str, Any]:
    from ipykernel.inprocess.ipkernel import InProcessKernel

    kernel: Any = InProcessKernel  # untyped, all of it
    ours = kernel()
    ours.shell.run_line_magic("load_ext", "tfgpu_magic")
    reply: dict[str, Any] = ours.do_complete(line, len(line))
    return reply
