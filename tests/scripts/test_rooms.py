"""The tests of what a change touches: a room's folders, or as many files as take a minute."""

from __future__ import annotations

import pytest

from scripts._rooms import folders, touched


def test_a_room_has_the_folders_in_which_its_defects_are_found() -> None:
    assert folders(["policy"]) == ["tests/policy", "tests/tf"]
    assert folders(["tfgpu_magic/parking/words.py"]) == ["tests/parking"]
    assert folders(["errors.py"]) == ["tests"]
    with pytest.raises(SystemExit, match="no room 'polcy'"):
        folders(["polcy"])


def test_a_change_is_tested_by_what_changed_and_then_by_what_costs_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts._rooms.BUDGET", 5.0)
    first, *others = touched(["tfgpu_magic/policy/parser.py", "tests/views/test_why.py", "README.md"])

    assert first == "tests/views/test_why.py"
    assert others
    assert {one.split("/")[1] for one in others} <= {"policy", "tf"}
    assert touched(["README.md"]) == []
