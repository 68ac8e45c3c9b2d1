"""When a live table is sent to pages that may have gone without a word; the clock is the test's."""

from __future__ import annotations

import pytest

from tfgpu_magic.notebook import widget
from tfgpu_magic.notebook.widget import PRESENT_FOR, STATE_EVERY, Outputs, Pages


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def sent(pages: Pages, clock: Clock, seconds: float) -> int:
    """Return how many states are sent in a time in which no page is heard."""
    end, count = clock.now + seconds, 0
    while (pause := pages.pause()) is not None and clock.now + pause <= end:
        clock.now += pause
        count += 1
    clock.now = end
    return count


def test_a_page_that_is_not_heard_any_more_is_sent_nothing() -> None:
    pages = Pages(clock=(clock := Clock()))

    assert sent(pages, clock, 8 * 3600) <= PRESENT_FOR / STATE_EVERY
    assert pages.pause() is None


def test_a_page_that_comes_back_is_sent_everything_again() -> None:
    pages = Pages(clock=(clock := Clock()))
    sent(pages, clock, 3600)
    pages.hear()

    assert pages.pause() == STATE_EVERY


def test_silence_in_a_running_cell_is_not_absence_and_piles_nothing_up() -> None:
    pages = Pages(running=True, clock=(clock := Clock()))
    begin, rest = sent(pages, clock, 60), sent(pages, clock, 8 * 3600)
    pause = pages.pause()
    week = sent(pages, clock, 7 * 24 * 3600)

    assert begin == 60
    assert pause is not None
    assert 60 < pause <= 8 * 60
    assert rest < 600
    assert week < 400


def test_what_pages_said_during_a_cell_is_heard_at_its_end() -> None:
    pages = Pages(running=True, clock=(clock := Clock()))
    clock.now = 3600.0
    pages.end()
    before = pages.pause()
    clock.now += 1
    pages.hear()
    clock.now += PRESENT_FOR - 1

    assert before == pages.pause() == STATE_EVERY


def test_a_page_that_is_heard_while_a_cell_runs_has_gone_when_it_is_silent() -> None:
    pages = Pages(clock=(clock := Clock()))
    pages.begin()
    clock.now = 10.0
    pages.hear()

    assert sent(pages, clock, 3600) <= PRESENT_FOR / STATE_EVERY


def test_a_page_whose_words_wait_for_the_cell_is_not_taken_for_one_that_is_heard() -> None:
    pages = Pages(clock=(clock := Clock()))
    pages.hear()
    pages.begin()
    clock.now += 2 * PRESENT_FOR

    assert pages.pause() == STATE_EVERY


def test_outputs_of_a_page_that_draws_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widget, "display", lambda *_, **__: None)
    outputs = Outputs(lambda: ({}, {}), dict)
    outputs.show()
    outputs.answer()
    outputs.show()

    assert outputs._shown == []
