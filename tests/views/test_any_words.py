"""With random words in every message, deeds, exit statuses, lines to try and clicks are the same."""

from __future__ import annotations

import contextlib
import random
import shlex
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.policy.test_plan import FOUR, MIG, gpu, planned
from tfgpu_magic.command import dispatch, wording
from tfgpu_magic.engine import offers
from tfgpu_magic.errors import PolicyError, Refused, TfGpuError
from tfgpu_magic.ground import html
from tfgpu_magic.ground.message import FrontEnd, Line, Message, Severity
from tfgpu_magic.isolate.cells import cell
from tfgpu_magic.notebook import chooser
from tfgpu_magic.notebook.words import line
from tfgpu_magic.policy.process_state import Stage

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
    above = SimpleNamespace(error=lambda: error)
    for refusal in (
        line.refused(error, "limit 95%", KERNEL),
        line.refused(error, "limit 95%", KERNEL, "gpu"),
        cell._not_run(above, KERNEL, "%%tf_gpu isolate -o x"),  # type: ignore[arg-type]
    ):
        parts = refusal.parts if isinstance(refusal, offers.OfferingError) else []
        made += [type(refusal), [part for part in parts if not isinstance(part, str)]]
    facts = chooser._refused(error)
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
@pytest.mark.parametrize("retryable", [[], ["GPU-0"]])
def test_a_refusal_offers_the_same_whatever_its_words(
    words: str, gpus: Any, here: dict[str, Any], retryable: list[str], monkeypatch: pytest.MonkeyPatch
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
