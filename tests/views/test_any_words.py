"""With random words in every message, deeds, exit statuses, lines to try and clicks are the same."""

from __future__ import annotations

import contextlib
import random
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.insight.cases import case, row
from tests.policy.test_plan import FOUR, MIG, gpu, planned
from tests.views import tables
from tfgpu_magic.command import dispatch, wording
from tfgpu_magic.engine import offers
from tfgpu_magic.errors import PolicyError, Refused, TfGpuError
from tfgpu_magic.ground import html
from tfgpu_magic.ground.message import FrontEnd, Line, Message, Severity, msg
from tfgpu_magic.insight.why.answer import Why
from tfgpu_magic.insight.why.remedies import Trial, remedies, restart, shut
from tfgpu_magic.isolate.call import CellCall
from tfgpu_magic.isolate.cells import cell
from tfgpu_magic.notebook import chooser
from tfgpu_magic.notebook.words import line
from tfgpu_magic.parking import other_notebooks
from tfgpu_magic.parking.frameworks import Staying, Survey
from tfgpu_magic.parking.frameworks.tensorflow import KEEPS, PREFETCHES
from tfgpu_magic.parking.outcome import BUSY, MIME, ParkOutcome
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.tell import page_json

REFUSED: list[tuple[str, Any, dict[str, Any]]] = [
    ("limit 95%", FOUR, {}),
    ("limit 0=1GiB; visible 7", FOUR, {}),
    ("visible 0; limit 1=1GiB", FOUR, {}),
    ("visible MIG-bbbb,MIG-cccc", MIG, {}),
    ("limit 40%", (gpu(0),), {"stage": Stage.READY, "host": "kernel"}),
    ("limit 40%", (gpu(0),), {"stage": Stage.READY, "host": "cell"}),
    ("limit much", FOUR, {}),
    ("limits 2GiB", FOUR, {}),
    ("growth --relase", FOUR, {}),
]
OTHER = ["Warning:", "%tf_gpu", "KeyboardInterrupt", "--restart", "`", "this notebook", "\n"]
KERNEL = SimpleNamespace(kernel=None, custom_exceptions=(), set_custom_exc=lambda *_: None)


def error_of(words: str, gpus: Any, here: dict[str, Any]) -> TfGpuError:
    with pytest.raises(TfGpuError) as caught:
        planned(words, *gpus, **here)
    return caught.value


def shown(error: TfGpuError, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what each front end makes of an error but words: lines, clicks, facts and the exit status."""

    def refuse(_: object) -> int:
        wording.in_shell(raising(error), "tfgpu plan {}".format)
        return 0

    made: list[object] = []
    for refusal in (
        line.usage_error(error, "limit 95%", KERNEL),
        line.usage_error(error, "limit 95%", KERNEL, "gpu"),
        cell._not_started(error, KERNEL, CellCall(flags=" -o x")),
    ):
        parts = refusal.parts if isinstance(refusal, offers.OfferingError) else []
        made += [type(refusal), [part for part in parts if not isinstance(part, str)]]
    facts = chooser._describe_refusal(error)
    made += [facts["outcome"], facts["ways"]]
    monkeypatch.setattr(dispatch, "_outcome", refuse)
    made.append(dispatch.answer(shlex.split("plan x")))
    return made


def raising(error: TfGpuError) -> Any:
    def fail() -> None:
        raise error

    return fail


@contextlib.contextmanager
def any_words() -> Iterator[None]:
    """Have every text in a message read as chance has it."""
    parts, chance = FrontEnd.parts, random.Random(3)

    def otherwise(self: FrontEnd, message: Message) -> Iterator[str | Line]:
        for part in parts(self, message):
            yield (
                part if isinstance(part, Line) else "".join(chance.choices("Warning: %tf_gpu KeyboardInterrupt\n", k=9))
            )

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(FrontEnd, "parts", otherwise)
        yield


@pytest.mark.parametrize(("words", "gpus", "here"), REFUSED)
@pytest.mark.parametrize("retryable", [{}, {"GPU-0": None}])
def test_a_refusal_offers_the_same_whatever_its_words(
    words: str, gpus: Any, here: dict[str, Any], retryable: dict[str, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = error_of(words, gpus, here)
    if isinstance(error, Refused):
        error.retryable = retryable
    read, before = str(error), shown(error, monkeypatch)
    with any_words():
        assert str(error) != read
        assert shown(error, monkeypatch) == before

    wrong = isinstance(error, PolicyError)
    assert before[-1] == (dispatch.CROWDED if retryable and not wrong else dispatch.WRONG)
    assert before[-3] == ("wrong" if wrong else "refused")


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        ("limit 99%", (gpu(0, 80, 80, capability=(8, 0)),)),
        ("visible 2; limit 1GiB", FOUR),
        ("limit 4GiB --grow", (gpu(0, 2, used=6 * 2**30),)),
    ],
)
def test_a_plan_and_what_is_serious_of_it_are_the_same_whatever_its_notes_read_like(words: str, gpus: Any) -> None:
    before = planned(words, *gpus)
    warns = [note.severity is Severity.WARNING for note in before.notes]
    with any_words():
        after = planned(words, *gpus)
        drawn = [html.remark(note).startswith('<p class="tfgpu-warning">') for note in after.notes]

    assert (after.devices, after.environment, after.asked) == (before.devices, before.environment, before.asked)
    assert drawn == warns
    assert any(warns) == (words == "limit 99%")


@pytest.mark.parametrize(("words", "severity"), [("limit 99%", ["warning"]), ("limit 50%", [])])
def test_the_chooser_and_the_panel_get_the_same_but_words(words: str, severity: list[str]) -> None:
    def sent() -> list[dict[str, Any]]:
        plan = planned(words, gpu(0, 80, 80, capability=(8, 0)))
        panel = page_json.state(replace(tables.BUSY, notes=(*plan.notes, msg("A {note}.", note="note"))))
        return [chooser._describe(plan), dict(panel)]

    def wordless(facts: dict[str, Any]) -> dict[str, Any]:
        return {**facts, "notes": [note["severity"] for note in facts["notes"]]}

    before = sent()
    with any_words():
        after = sent()

    assert after[1] != before[1]
    assert list(map(wordless, after)) == list(map(wordless, before))
    assert [wordless(facts)["notes"] for facts in after] == [severity, ["note", *severity, "note"]]


class Everything(Trial):
    """A trial in which every policy fits."""

    def __init__(self) -> None:
        pass

    def anew(self, *_: object, **__: object) -> bool:
        return True

    beside = anew


@pytest.mark.parametrize("facts", [{}, {"host": "program"}, {"sendable": None}, {"cause": "gpu"}, {"call": True}])
def test_what_would_help_and_which_lines_can_be_clicked_are_the_same(facts: dict[str, Any]) -> None:
    def offered() -> list[object]:
        here = case(processes=(row(9.8),), **facts)
        found = *remedies(here, Everything()), shut(here, row(9.8), "growth"), restart(here, "pick")
        why = Why(case(**facts, remedies=found))
        lines = [line for one in found for line, _ in one.rows if isinstance(line, Line)]
        clicks = re.findall('data-tfgpu-line="(.*?)"', why._repr_html_())
        return [[one.kind for one in found], [one.words for one in found], lines, clicks, why._repr_mimebundle_()]

    before = offered()
    with any_words():
        assert offered() == before


REPLIES: list[dict[str, Any]] = [
    {"ename": "Parked", "evalue": "Parked"},
    {"user_expressions": {"parked": {"ename": "ModuleNotFoundError"}}},
    {"user_expressions": {"parked": {"evalue": "Warning:"}}},
    *(
        {"user_expressions": {"parked": {"data": {MIME: {"parked": it, "lines": ["Parked", "`"]}}}}}
        for it in (True, False)
    ),
]


def test_what_is_parked_and_why_it_is_not_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Staying("TensorFlow's memory", 9, KEEPS)
    surveys = Survey(), Survey(stays=[memory]), Survey(refusals=[PREFETCHES])

    def deeds() -> list[object]:
        outcomes = [other_notebooks._outcome(reply) for reply in REPLIES]
        done: list[object] = [(one.parked, len(one.lines)) for one in outcomes]
        for parked in (True, False):
            monkeypatch.setattr(other_notebooks, "ask_to_park", lambda _, it=parked: ParkOutcome(it, [BUSY]))
            with pytest.raises(Refused) if not parked else contextlib.nullcontext():
                other_notebooks.park(1, "a.ipynb")
        with pytest.raises(PolicyError):
            other_notebooks.find_among("a", {7: "b"})
        return [*done, *(len(one.reasons) for one in surveys)]

    before = deeds()
    with any_words():
        assert deeds() == before
