"""The comparison with other programs: its page is that of the script, and ours answers as the page says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from scripts._compare import OURS, PAGE, PEERS, Answers, ask, table

pytestmark = pytest.mark.nightly

COMMAND = OURS[0]
NOTHING = Answers(
    first=None, memory=None, names=False, private=None, says=False, reacts=True, calls=80.0, limit=""
)  # fmt: skip


def test_the_page_has_every_program_in_the_version_that_is_asked_and_what_it_does_better() -> None:
    text = PAGE.read_text()

    assert [peer.name for peer in PEERS if f"{peer.name} {peer.version}" not in text] == []
    assert [peer.name for peer in PEERS if f"| {peer.name} | {peer.better} |" not in text] == []


def test_ours_names_the_notebook_keeps_others_lines_to_itself_and_limits_before_the_first_use() -> None:
    answers = ask(COMMAND, Path(sys.executable), count=2, window=5)

    assert answers.names
    assert answers.private is (True if os.geteuid() == 0 else None)
    assert answers.limit == "tfgpu run"
    assert answers.calls > 0


def test_a_program_that_cannot_be_asked_is_named_with_the_reason() -> None:
    made = table([(COMMAND, NOTHING), (PEERS[0], "it needs another Python.")], "2026-01-01")

    assert "Asked on 2026-01-01" in made
    assert f"{PEERS[0].name} {PEERS[0].version} was not asked: it needs another Python." in made
    assert "| keeps other users' command lines to itself | not asked |" in made
