"""How often NVML is asked, and what for: simulated hours of drivers that are quick, slow and gone."""

from __future__ import annotations

import pytest

from tfgpu_magic.machine.driver.schedule import Schedule, WantedIntervals

NOTHING = {"memory": 0.0, "lists": 0.0, "graphics": 0.0}


def spent(
    cost: dict[str, float],
    *,
    seconds: float = 7200,
    moving: bool = False,
    wanted: WantedIntervals = WantedIntervals(),  # noqa: B008
) -> tuple[float, dict[str, int]]:
    """Simulate a schedule; return what part of the time readings take that cost so much, and how many there are.

    Args:
        moving: whether each reading finds that memory has moved, so that lists are wanted too.
        wanted: what the views want.
    """
    schedule, now, busy = Schedule(), 0.0, 0.0
    schedule.wanted = wanted
    count = dict.fromkeys(cost, 0)
    while now < seconds:
        kind = schedule.due_kind(now)
        if kind is not None:
            both = moving and kind == "memory" and schedule.may_list(now)
            took = cost["memory"] + cost["lists"] if both else cost[kind]
            kind = "lists" if both else kind
            schedule.record(kind, now, took)
            now, busy = now + took, busy + took
            count[kind] += 1
        now = max(now, schedule.next_due())
    return busy / now, count


def test_memory_is_read_every_second_lists_every_two_and_graphics_every_ten() -> None:
    _, count = spent(NOTHING, seconds=1000)

    assert count == {"memory": 500, "lists": 400, "graphics": 100}  # a dearer reading is a cheaper one too


def test_a_driver_that_is_slow_to_start_is_not_held_against_it() -> None:
    schedule = Schedule()
    schedule.record("graphics", 0.0, 20.0, opening=True)
    schedule.record("lists", 20.0, 0.001)

    assert (schedule.due_kind(21.0), schedule.due_kind(22.0)) == ("graphics", "graphics")


def test_a_driver_that_is_slow_to_fail_is_asked_the_more_rarely() -> None:
    schedule, pauses = Schedule(), []
    for cost in (0.001, 0.001, 0.001, 0.001, 0.001, 1.0):
        schedule.record("graphics", 0.0, cost, opening=True, failed=True)
        pauses.append(schedule.next_due())

    assert pauses == [1, 2, 4, 5, 5, pytest.approx(50)]


@pytest.mark.parametrize(("cost", "longest"), [(2.0, 60), (20.0, 80), (60.0, 240)])
def test_a_driver_that_has_failed_slowly_is_asked_again_in_minutes_and_costs_a_quarter(
    cost: float, longest: float
) -> None:
    schedule = Schedule()
    schedule.record("graphics", 0.0, cost, opening=True, failed=True)

    assert cost / 0.25 <= schedule.next_due() <= longest


def test_a_single_slow_reading_is_paid_for_bit_by_bit() -> None:
    schedule = Schedule()
    for number in range(5):
        schedule.record("lists", 10.0 * number, 0.3 if number == 4 else 0.001)
    schedule.record("graphics", 45.0, 0.001)

    assert [schedule.due_kind(at) for at in (46.5, 48.5)] == ["memory", "lists"]  # 7.5 s, and not 30


@pytest.mark.parametrize("cost", [0.3, 0.6, 2.0])
def test_figures_are_ten_seconds_old_at_the_most_however_slow_the_driver_is(cost: float) -> None:
    schedule, now, gaps = Schedule(), 0.0, []
    for _ in range(50):
        kind = schedule.due_kind(now)
        assert kind
        schedule.record(kind, now, cost)
        gaps.append(schedule.next_due() - now)
        now = schedule.next_due()

    assert max(gaps) <= 10


def test_a_driver_that_takes_longer_than_that_is_left_alone_most_of_the_time() -> None:
    part, _ = spent(dict.fromkeys(("memory", "lists", "graphics"), 20.0))

    assert part <= 0.25


def test_who_wants_to_see_more_rarely_costs_the_driver_less() -> None:
    wishes = (WantedIntervals(1, 2), WantedIntervals(5, 10), WantedIntervals(1, 10))
    counts = [spent(NOTHING, seconds=1000, wanted=wanted)[1] for wanted in wishes]

    assert [sum(count.values()) for count in counts] == [1000, 200, 1000]
    assert [count["lists"] + count["graphics"] for count in counts] == [500, 100, 100]


def test_where_there_was_never_a_driver_it_is_looked_for_once_a_minute() -> None:
    schedule, pauses = Schedule(), []
    for _ in range(8):
        schedule.record("graphics", 0.0, 0.001, opening=True, failed=True, absent=True)
        pauses.append(schedule.next_due())
    schedule.record("graphics", 0.0, 0.001, opening=True)
    for _ in range(8):
        schedule.record("graphics", 0.0, 0.001, opening=True, failed=True, absent=True)

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert schedule.next_due() == 5  # one that goes comes back


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("lists", [0.001, 0.01, 0.03])
@pytest.mark.parametrize("memory", [0.0001, 0.004, 0.05])
def test_never_more_than_two_percent_of_the_time_is_spent_in_nvml(memory: float, lists: float, moving: bool) -> None:
    cost = {"memory": memory, "lists": memory + lists, "graphics": memory + 1.1 * lists}
    part, count = spent(cost, moving=moving)

    assert round(part, 4) <= 0.02  # which is so in the long run: these are two hours
    assert moving or min(count.values()) > 0
