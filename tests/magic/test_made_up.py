"""A word is a file and a line of the table: all that people see of it comes from there, in a real IPython."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.magic.shell import Seen, cells, each
from tests.processes import run as run_on
from tests.slack import SLACK
from tfgpu_magic.ground.message import msg
from tfgpu_magic.notebook import complete
from tfgpu_magic.notebook.words import table
from tfgpu_magic.policy.word import CellForm, Flag, ParsedLine, Word
from tfgpu_magic.simgpu import Machine

BARK = Word(
    "bark",
    ("bark [N]",),
    "says woof, N times",
    flags=(Flag("--twice", "", "says it twice"),),
    takes=True,
    tried=("woof",),
    instead="A dog is `%tf_gpu bark`.",
    home=__name__,
)
HOWL = Word(
    "howl",
    ("%%tf_gpu howl",),
    "says the cell",
    above=CellForm(
        (Flag("--loud", "N", "so loud"), Flag("--at", "NAMES", "at these")),
        "POLICY",
        msg("Write it."),
        "A wolf says the cell.",
    ),
    home=__name__,
)
"""Two words as a stranger would add them: their entries in the table, and a module, which is this one."""

ANSWERED = [
    ("%tf_gpu bark", "woof"),
    ("%tf_gpu BARK 2  # twice", "woof woof"),
    ("%%tf_gpu howl --loud 3\nauh", "auh --loud 3"),
    ("%tf_gpu help", "bark [N]         says woof, N times"),
    ("%tf_gpu help", "A wolf says the cell.\n\n  --loud N  so loud"),
    ("print(get_ipython().object_inspect('%tf_gpu')['docstring'])", "says woof, N times"),
]
REFUSED = [
    ("%tf_gpu brak", "Did you mean 'bark'?"),
    ("%%tf_gpu howk\n1", "Did you mean 'howl'?"),
    ("%tf_gpu woof", "A dog is `%tf_gpu bark`."),
    ("%tf_gpu list", "Who holds what is `%tf_gpu status`."),
    ("%tf_gpu growth; bark", "`bark` is no policy"),
    (
        "%%tf_gpu bark\n1",
        "only `%%tf_gpu measure`, `%%tf_gpu isolate` or `%%tf_gpu howl` can stand. 'bark' stands in a line",
    ),
    ("%tf_gpu bark --restart", "`bark` sets nothing, so --restart has no place beside it."),
]
OFFERED = [
    ("%tf_gpu ba", ["bark"]),
    ("%tf_gpu bark ", ["--twice", "2", "3"]),
    ("%%tf_gpu ", ["howl", "isolate", "measure"]),
    ("%%tf_gpu howl --at im", ["images"]),
    ("%%tf_gpu howl --lo", ["--loud"]),
    ("%%tf_gpu howl visible 1", ["1"]),
]


@pytest.fixture(scope="module")
def seen() -> tuple[dict[str, Seen], dict[str, list[str]]]:
    """What each cell gives, and what is offered at the end of each line: one process for all of them."""
    with Machine.create("2x8GiB") as machine:
        found: tuple[dict[str, Seen], dict[str, list[str]]] = run_on(
            machine, _seen, [cell for cell, _ in ANSWERED + REFUSED], [line for line, _ in OFFERED]
        )
    return found


@pytest.mark.parametrize(("cell", "told"), ANSWERED)
def test_it_is_answered_and_explained(seen: tuple[dict[str, Seen], dict[str, list[str]]], cell: str, told: str) -> None:
    one = seen[0][cell]

    assert " ".join(told.split()) in " ".join(one.text.split())
    assert not one.error


@pytest.mark.parametrize(("cell", "told"), REFUSED)
def test_it_is_refused_where_it_may_not_stand_and_suggested_where_it_may_be_meant(
    seen: tuple[dict[str, Seen], dict[str, list[str]]], cell: str, told: str
) -> None:
    one = seen[0][cell]

    assert told in one.text
    assert "Traceback" not in one.text
    assert one.error == "UsageError"


@pytest.mark.parametrize(("line", "offered"), OFFERED)
def test_tab_offers_it_and_what_it_takes(
    seen: tuple[dict[str, Seen], dict[str, list[str]]], line: str, offered: list[str]
) -> None:
    assert seen[1][line] == offered


def _seen(sources: list[str], lines: list[str]) -> tuple[dict[str, Seen], dict[str, list[str]]]:
    """Run the cells with both words in the table, put there before the extension is loaded, and complete the lines."""
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    table.WORDS = (*table.WORDS, BARK, HOWL)
    complete.LOOK_TIMEOUT = 10.0 * SLACK  # what is offered is tested here, and not how soon
    answers = each(sources)
    cells("images = 1")
    with provisionalcompleter():
        shell = InteractiveShell.instance()
        offered = {line: sorted(one.text for one in shell.Completer.completions(line, len(line))) for line in lines}
    return answers, offered


def run(said: ParsedLine) -> str:
    return " ".join(["woof"] * int(said.rest or 1))


def completions(said: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    return [] if said else ["2", "3"]


def prepare(said: ParsedLine, cell: str, _: Any) -> Callable[[], object]:
    return lambda: f"{cell.strip()} {said.rest}"
