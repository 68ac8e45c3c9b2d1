"""Each defect that is kept as data can still be planted."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import _mutants


def test_each_defect_can_be_planted() -> None:
    defects = _mutants.read()
    for defect in defects:
        file, source = defect.planted()
        assert ast.dump(ast.parse(source)) != ast.dump(ast.parse((_mutants.ROOT / file).read_text())), defect.name

    assert len({defect.name for defect in defects}) == len(defects)


def test_each_function_of_a_defect_tells_when_it_is_called(tmp_path: Path) -> None:
    functions = {defect.at for defect in _mutants.read()}
    marked = "".join(map(ast.unparse, map(ast.parse, _mutants._marked(tmp_path).values())))

    assert {one for one in functions if f"'{tmp_path / one}'" in marked} == functions


@pytest.mark.parametrize(
    ("change", "why"),
    [({"text": "gone"}, "has 'gone' 0 times"), ({"at": "server.feed.Gone.add"}, "is not there")],
)
def test_one_that_cannot_is_named(change: dict[str, str], why: str) -> None:
    defect = replace(_mutants.read()[0], **change)

    with pytest.raises(SystemExit, match=rf"_mutants.toml: {defect.name}: {defect.at} {why}. Renew it or take it out"):
        defect.planted()
