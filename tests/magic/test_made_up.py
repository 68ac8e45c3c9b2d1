"""A word is a file and a line of the table: all that people see of it comes from there, in a real IPython."""

from __future__ import annotations

import pytest

from tests.magic import made_up
from tests.magic.shell import Seen, cells
from tests.processes import run
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.words import table


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("%tf_gpu bark", "woof"),
        ("%tf_gpu BARK 2  # twice", "woof woof"),
        ("%%tf_gpu howl --loud 3\nauh", "auh --loud 3"),
        ("%tf_gpu help", "bark [N]         says woof, N times"),
        ("%tf_gpu help", "%%tf_gpu howl [--loud N] [WORDS]"),
        ("%tf_gpu help", "A wolf says the cell.\n\n  --loud N  so loud"),
        ("print(get_ipython().object_inspect('%tf_gpu')['docstring'])", "says woof, N times"),
    ],
)
def test_it_is_answered_and_explained(cell: str, told: str) -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, _said, cell)

    assert " ".join(told.split()) in " ".join(seen.text.split())
    assert not seen.error


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("%tf_gpu brak", "Did you mean 'bark'?"),
        ("%%tf_gpu howk\n1", "Did you mean 'howl'?"),
        ("%tf_gpu woof", "A dog is `%tf_gpu bark`."),
        ("%tf_gpu plan woof", "A dog is `%tf_gpu bark`."),
        ("%tf_gpu growth; bark", "`bark` is no policy"),
        (
            "%%tf_gpu bark\n1",
            "only `%%tf_gpu measure`, `%%tf_gpu isolate` or `%%tf_gpu howl` can stand. 'bark' stands in a line",
        ),
        ("%tf_gpu bark --restart", "`bark` sets nothing, so --restart has no place beside it."),
        ("%%tf_gpu howl --restart\n1", "`howl` sets nothing"),
    ],
)
def test_it_is_refused_where_it_may_not_stand_and_suggested_where_it_may_be_meant(cell: str, told: str) -> None:
    with Machine.create("2x8GiB") as machine:
        seen: Seen = run(machine, _said, cell)

    assert told in seen.text
    assert "Traceback" not in seen.text
    assert seen.error == "UsageError"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("%tf_gpu ba", ["bark"]),
        ("%tf_gpu bark ", ["--twice", "2", "3"]),
        ("%tf_gpu bark 2 ", ["--twice"]),
        ("%%tf_gpu ", ["howl", "isolate", "measure"]),
        ("%%tf_gpu bark ", []),
        ("%%tf_gpu howl im", ["images"]),
        ("%%tf_gpu howl --l", ["--loud"]),
        ("%%tf_gpu howl 1", ["1"]),
    ],
)
def test_tab_offers_it_and_what_it_takes(line: str, offered: list[str]) -> None:
    with Machine.create("2x8GiB") as machine:
        assert run(machine, _offered, line) == offered


def _said(cell: str) -> Seen:
    _register()
    return cells(cell)[-1]


def _offered(line: str) -> list[str]:
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    _register()
    cells("images = 1")
    with provisionalcompleter():
        return sorted(match.text for match in InteractiveShell.instance().Completer.completions(line, len(line)))


def _register() -> None:
    """Put its line into the table, before the extension is loaded, as if it stood there."""
    table.WORDS = (*table.WORDS, made_up.BARK, made_up.HOWL)
