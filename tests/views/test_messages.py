"""A message is a sentence of its facts, with what to do next; a front end alone knows how it reads."""

from __future__ import annotations

import pickle
import re

import pytest

from tfgpu_magic.ground.message import (
    HELP,
    IPYTHON,
    MAGIC,
    FrontEnd,
    Line,
    Message,
    Severity,
    format_list,
    join,
    msg,
    paragraph,
    warning,
)

CROWDED = msg("GPU {gpu} is full. Write {line}.", gpu=0, line=Line("visible 1")).with_tries(
    "\nFits now:\n  ", ["pick", "limit 1GiB"]
)


def test_a_sentence_has_its_facts_as_they_are() -> None:
    made = msg("{name}'s {command}, {count}", name="{count}", command="%1 {name} %%", count=2)

    assert str(made) == "{count}'s %1 {name} %%, 2"


def test_several_are_read_one_after_the_other() -> None:
    assert str(paragraph(("", "It is late.", None, "Restart."))) == "It is late. Restart."
    assert [str(format_list(one)) for one in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("front_end", "text"),
    [
        (IPYTHON, "Write %tf_gpu visible 1.\nFits now:\n  %tf_gpu pick\n  %tf_gpu limit 1GiB"),
        (FrontEnd("gpu"), "Write %gpu visible 1.\nFits now:\n  %gpu pick\n  %gpu limit 1GiB"),
        (
            FrontEnd(above="%%tf_gpu isolate -o x"),
            "Write %tf_gpu visible 1.\nFits now:\n  %%tf_gpu isolate -o x pick\n  %%tf_gpu isolate -o x limit 1GiB",
        ),
    ],
)
def test_a_front_end_writes_a_line_as_it_is_typed_there(front_end: FrontEnd, text: str) -> None:
    assert front_end.text(CROWDED) == f"GPU 0 is full. {text}"


def test_what_to_try_next_is_data_and_may_be_left_out() -> None:
    assert CROWDED.tries == (Line("pick", "try"), Line("limit 1GiB", "try"))
    assert msg("Not so. {why}", why=CROWDED).tries == CROWDED.tries
    assert str(CROWDED.without_next) == "GPU 0 is full. Write %tf_gpu visible 1."
    assert CROWDED.without_next.with_tries("\nNothing: ", []) == CROWDED.without_next


def test_each_kind_of_line_is_written_as_it_is_typed() -> None:
    every = [Line("isolate a", "above"), HELP, MAGIC, Line("X=1", "setting"), Line("a", "try", restarts=True)]

    assert str(join(", ", every)) == "%%tf_gpu isolate a, %tf_gpu?, %tf_gpu, %env X=1, %tf_gpu a --restart"


def test_how_serious_it_is_is_no_part_of_its_words() -> None:
    late = warning("it is {what}.", what="late")

    assert (str(late), IPYTHON.sentence(late)) == ("Warning: it is late.", "it is late.")
    assert late.severity is Severity.WARNING
    assert str(paragraph([late, "Go."])) == "it is late. Go."


def test_equal_messages_are_one_and_another_process_has_the_same() -> None:
    assert {CROWDED: 1, pickle.loads(pickle.dumps(CROWDED)): 2} == {CROWDED: 2}


def test_it_has_no_method_of_a_text() -> None:
    assert not [
        name for name in dir(Message) if re.fullmatch("[a-z].*", name) and hasattr(str, name) and name not in dir(tuple)
    ]
