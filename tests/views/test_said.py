"""Sentences are made of their facts; a name among them is one line, and nothing follows from how they read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rows import changed
from tests.views.tables import BUSY, HOSTILE, process
from tfgpu_magic.engine import other_processes
from tfgpu_magic.model import phrases
from tfgpu_magic.model.message import in_lines
from tfgpu_magic.model.rows import Owner, Table
from tfgpu_magic.model.snapshot import Process, Snapshot
from tfgpu_magic.monitor.table import fetch


def test_below_a_tables_text_a_note_has_its_lines_and_each_is_safe() -> None:
    (note,) = phrases.remarks(Table(notes=(in_lines(("others", f"a\x1b[2J{'b' * 3000}")),)))
    first, second = str(note).split("\n")

    assert (first, second[:7], len(second)) == ("others", "a?[2Jbb", 2000)


def test_a_name_in_a_sentence_is_one_line_of_plain_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {7: Owner(pid=7, who="mine", text=HOSTILE), 8: Owner(pid=8, who="this", text="this notebook")}
    monkeypatch.setattr(fetch, "owners", lambda *_, **__: owners)
    processes = tuple(Process(gpu="0", pid=pid, kind="C", held=1) for pid in owners)
    names = other_processes.names(Snapshot(time=1.0, processes=processes))

    assert names == {7: phrases.plain(HOSTILE, longest=120), 8: "this program"}
    assert not set(names[7]) & set("\n\x1b\u202e\ud800")


def test_a_session_is_found_by_whose_it_is_and_not_by_what_it_is_called() -> None:
    rows = (process(owner="this notebook"), changed(process(owner="this notebook's python3"), who="this"))
    called = phrases.called(replace(BUSY, processes=rows), "session")

    assert [row.owner.text for row in called.processes] == ["this notebook", "this session's python3"]
