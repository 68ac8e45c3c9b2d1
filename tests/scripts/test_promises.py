"""Each promise of README and of a page has a scene that `scripts/test` runs: `tests/promises.toml` says which."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGES = [TESTS.parent / "README.md", *(TESTS.parent / "docs").glob("*.md")]
toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
PROMISES: dict[str, dict[str, str | list[str]]] = toml.loads((TESTS / "promises.toml").read_text())
LEFT_OUT = r"pytest\.mark\.(nightly|gpu|frameworks)\b"
"""The marks of what `scripts/test` leaves out."""


def promises(page: Path) -> Iterator[str]:
    """Give the headings of a page that have a text of their own, and the rows of README's table."""
    text = re.sub(r"^( *)(`{3,}|~{3,}).*?^\1\2`*$", "code", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"^#+ (.+)\n\s*(?!#)\S", text, re.MULTILINE)
    if page.stem == "README":
        yield from re.findall(r"^\| (?!To \|)(.+?) \|", text, re.MULTILINE)


def scenes(told: str | list[str]) -> list[str]:
    """Return the scenes of a row, which says one, several, or why there is none."""
    return told if isinstance(told, list) else [told] * ("::" in told)


@cache
def everyday(file: str) -> set[str]:
    """Return the tests of a file that `scripts/test` runs."""
    body = ast.parse((TESTS / file).read_text()).body
    if any(isinstance(one, ast.Assign) and re.search(f"pytestmark = .*{LEFT_OUT}", ast.unparse(one)) for one in body):
        return set()
    return {
        one.name
        for one in body
        if isinstance(one, ast.FunctionDef)
        if not any(re.match(LEFT_OUT, ast.unparse(mark)) for mark in one.decorator_list)
    }


def is_run(file: str, test: str) -> bool:
    return (TESTS / file).exists() and test in everyday(file)


def test_each_heading_and_each_row_of_readmes_table_has_a_row_and_no_other_thing() -> None:
    there = {(page.stem, promise) for page in PAGES for promise in promises(page)}
    rows = {(page, promise) for page, told in PROMISES.items() for promise in told}

    assert there - rows == set(), "these have no row"
    assert rows - there == set(), "these are not there any more"


def test_each_scene_is_a_test_that_scripts_test_runs() -> None:
    rows = [row for page in PROMISES.values() for row in page.items()]
    told = [(promise, one) for promise, told in rows for one in scenes(told)]

    assert [promise for promise, told in rows if not told] == []
    assert [(promise, one) for promise, one in told if not is_run(*one.split("::"))] == []
