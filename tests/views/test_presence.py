"""When a live table is sent to pages that may have gone without a word; the clock is the test's."""

from __future__ import annotations

from tfgpu_magic.notebook.presence import LEASE, STATE_EVERY, Presence


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def sent(presence: Presence, clock: Clock, seconds: float) -> int:
    """Return how many states are sent in a time in which no page is heard."""
    end, count = clock.now + seconds, 0
    while (pause := presence.pause()) is not None and clock.now + pause <= end:
        clock.now += pause
        count += 1
    clock.now = end
    return count


def test_a_page_that_is_not_heard_any_more_is_sent_nothing() -> None:
    presence = Presence(clock=(clock := Clock()))

    assert sent(presence, clock, 8 * 3600) <= LEASE / STATE_EVERY
    assert presence.pause() is None


def test_a_page_that_comes_back_is_sent_everything_again() -> None:
    presence = Presence(clock=(clock := Clock()))
    sent(presence, clock, 3600)
    presence.hear()

    assert presence.pause() == STATE_EVERY


def test_silence_in_a_running_cell_is_not_absence_and_piles_nothing_up() -> None:
    presence = Presence(running=True, clock=(clock := Clock()))
    begin, rest = sent(presence, clock, 60), sent(presence, clock, 8 * 3600)
    pause = presence.pause()
    week = sent(presence, clock, 7 * 24 * 3600)

    assert begin == 60
    assert pause is not None
    assert 60 < pause <= 8 * 60
    assert rest < 600
    assert week < 400


def test_what_pages_said_during_a_cell_is_heard_at_its_end() -> None:
    presence = Presence(running=True, clock=(clock := Clock()))
    clock.now = 3600.0
    presence.end()
    before = presence.pause()
    clock.now += 1
    presence.hear()
    clock.now += LEASE - 1

    assert before == presence.pause() == STATE_EVERY


def test_a_page_that_is_heard_while_a_cell_runs_has_gone_when_it_is_silent() -> None:
    presence = Presence(clock=(clock := Clock()))
    presence.begin()
    clock.now = 10.0
    presence.hear()

    assert sent(presence, clock, 3600) <= LEASE / STATE_EVERY


def test_a_page_whose_words_wait_for_the_cell_is_not_taken_for_one_that_is_heard() -> None:
    presence = Presence(clock=(clock := Clock()))
    presence.hear()
    presence.begin()
    clock.now += 2 * LEASE

    assert presence.pause() == STATE_EVERY
