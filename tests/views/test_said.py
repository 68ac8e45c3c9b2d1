"""Sentences are made of their facts; a name among them is one line, and nothing follows from how they read."""

from __future__ import annotations

import pytest

from tests.views.tables import HOSTILE
from tfgpu_magic.engine import other_processes
from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.message import join_lines
from tfgpu_magic.ground.rows import Owner, Table
from tfgpu_magic.ground.snapshot import Process, Snapshot
from tfgpu_magic.tell import fetch


def test_below_a_tables_text_a_note_has_its_lines_and_each_is_safe() -> None:
    (note,) = phrases.remarks(Table(notes=(join_lines(("others", f"a\x1b[2J{'b' * 3000}")),)))
    first, second = str(note).split("\n")

    assert (first, second[:7], len(second)) == ("others", "a?[2Jbb", 2000)


def test_a_name_in_a_sentence_is_one_line_of_plain_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {7: Owner(pid=7, who="mine", text=HOSTILE)}
    monkeypatch.setattr(fetch, "owners", lambda *_, **__: owners)
    processes = tuple(Process(gpu="0", pid=pid, kind="C", held=1) for pid in owners)
    names = other_processes.names(Snapshot(time=1.0, processes=processes))

    assert names == {7: phrases.clean(HOSTILE, longest=120)}
    assert not set(names[7]) & set("\n\x1b\u202e\ud800")
