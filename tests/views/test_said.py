"""A sentence is its English text to everybody, and its words to a page; pages have the templates of the package."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import _said
from tests.views.tables import BUSY, HOSTILE, process
from tests.views.test_message import live
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model import phrases
from tfgpu_magic.model.report import GpuUse, Report
from tfgpu_magic.model.rows import Table
from tfgpu_magic.model.said import Said, Words, in_lines, known, of, say
from tfgpu_magic.model.snapshot import Gpu, Snapshot
from tfgpu_magic.monitor.board import lockfile
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.driver import nvml_calls
from tfgpu_magic.monitor.driver.schedule import ASLEEP
from tfgpu_magic.monitor.table import message
from tfgpu_magic.policy.plan import in_words

CHILD = say("{name}'s {command}", name=HOSTILE, command="%1 {name} %%")
ENDED = say("{name}, ended", name=CHILD)


def test_a_sentence_is_its_text() -> None:
    assert f"{HOSTILE}'s %1 {{name}} %%, ended" == ENDED
    assert json.loads(json.dumps([ENDED])) == [ENDED]
    assert len({ENDED, f"{ENDED} "[:-1]}) == 1


def test_words_with_what_controls_a_terminal_are_left_out() -> None:
    text = "gone \x1b[2J"

    assert known(text, [text]) == text
    assert not isinstance(known(text, [text]), Said)
    assert not isinstance(known(text, ["%1", [text]]), Said)


def test_its_words_make_it_again() -> None:
    assert ENDED.words == ["%1, ended", ["%1's %2", HOSTILE, "%1 {name} %%"]]
    assert (again := of(json.loads(json.dumps(ENDED.words)))) == ENDED
    assert again.words == ENDED.words


@pytest.mark.parametrize(
    "made", [str(ENDED), str(MonitorError(ENDED)), copy.copy(ENDED), pickle.loads(pickle.dumps(ENDED))]
)
def test_it_stays_a_sentence_on_its_way(made: str) -> None:
    assert isinstance(made, Said)
    assert made.words == ENDED.words


def test_what_is_sent_has_each_sentence_with_its_words_safe_to_show() -> None:
    rows = (process(owner=ENDED), process(owner="this notebook", pid=8))
    state = message.state(
        live(replace(BUSY, processes=rows, summary="", notes=("a note", say("others")), error=say("others")))
    )
    named, free = state["rows"].values()
    name = named["owner"].removesuffix("'s %1 {name} %%, ended")

    assert named["said"] == {"owner": ["%1, ended", ["%1's %2", name, "%1 {name} %%"]]}
    assert re.search("[\u202e\n\x1b\ud800]", name) is None
    assert "said" not in free  # a name that reads like a sentence is none
    assert state["said"] == {"error": ["others"], "notes": ["a note", ["others"]]}


def test_a_board_carries_sentences_and_an_older_reader_their_texts() -> None:
    note, why = say("{gpus} are others", gpus="0, 1"), say("others")
    snapshot = Snapshot(time=1.0, error=why, notes=("a note", note), gpus=(Gpu(index=0), Gpu(index=1, error=why)))
    read = Snapshot.from_json(snapshot.to_json())

    assert read == snapshot
    assert [isinstance(one, Said) for one in (read.error, *read.notes, read.gpus[1].error)] == [True, False, True, True]
    assert json.loads(snapshot.to_json())["notes"] == ["a note", "0, 1 are others"]


def test_a_report_carries_the_words_of_a_policy_and_an_older_reader_has_its_text() -> None:
    uses = (GpuUse(gpu="GPU-1", policy="growth"), GpuUse(gpu="GPU-2", policy=in_words((2**30,), grows=True)))
    report = Report(pid=7, summary="", uses=uses)
    read = Report.from_json(report.to_json())

    assert read == report
    assert [isinstance(use.policy, Said) for use in read.uses] == [False, True]
    assert json.loads(report.to_json())["uses"][1]["policy"] == "limit 1 GiB, grows"


def test_below_a_tables_text_a_note_has_its_lines_and_a_name_none() -> None:
    note = in_lines((say("others"), say("{name}, ended", name=HOSTILE)))

    assert [line.partition("<")[0] for line in phrases.remarks(Table(notes=(note,)))[0].split("\n")] == ["others", ""]


@pytest.mark.parametrize("words", [None, 7, "others", [], ["%1"], [7], ["others", "x", {}], ["another text"]])
def test_words_of_another_version_leave_the_text(words: object) -> None:
    said = known("others", words)

    assert said == "others"
    assert not isinstance(said, Said)


def test_errors_of_the_board_and_the_driver_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(MonitorError) as raised:
        BoardDirectory(tmp_path / "open")
    texts = (str(raised.value), nvml_calls.starting(12), nvml_calls.starting(77), nvml_calls.listing(15), ASLEEP)
    known_to_pages = set(_said.templates())

    for text in texts:
        assert isinstance(text, Said)
        assert used(text.words) <= known_to_pages


def test_why_no_collector_began_is_a_sentence_and_of_another_version_its_text(tmp_path: Path) -> None:
    why = say("{name} is not a folder", name=HOSTILE.encode(errors="replace").decode())
    fd = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        lockfile.fail(fd, why)
        sentence = lockfile.reason(fd)
        os.pwrite(fd, b"An older text.".ljust(300, b"\0"), lockfile._REASON_AT)
        older = lockfile.reason(fd)
        lockfile.fail(fd, say("{name} is not a folder", name="x" * 2000))
        long = lockfile.reason(fd)
        lockfile.succeed(fd)

        assert isinstance(sentence, Said)
        assert (sentence, sentence.words) == (why, why.words)
        assert [type(text) for text in (older, long, lockfile.reason(fd))] == [str, str, str]
        assert (older, long, lockfile.reason(fd)) == ("An older text.", "x" * 300, "")
    finally:
        os.close(fd)


def used(words: Words) -> set[str]:
    """Return the templates of a sentence and of those in it."""
    template, *fields = words
    return {str(template)}.union(*(used(field) for field in fields if isinstance(field, list)))


def test_the_pages_list_of_templates_is_the_packages() -> None:
    assert _said.text() == _said.TEMPLATES.read_text(), "python -m scripts._said"


def test_no_template_has_what_a_page_would_take_for_a_field() -> None:
    found = list(_said.templates())

    assert found
    for template in found:
        places = re.findall(r"%(\d)", template)
        assert list(dict.fromkeys(places)) == [str(number + 1) for number in range(len(set(places)))]
        assert "%%" not in template  # which pages write as one
