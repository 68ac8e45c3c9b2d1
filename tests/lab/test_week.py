"""The idle ladder over a week of twelve users, as data: told, parked, shut down as written, nobody in use touched."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import GIB, MIB
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.lab import idle_policy
from tfgpu_magic.lab.idle_policy import Action, IdleReading, IdleState, Rule, rule_of

HOUR = 3600.0
LOOK = 30.0
WEEK = 7 * 24
USUAL = Rule(2 * HOUR, stop=24 * HOUR)
PARKS = Rule(2 * HOUR, 6 * HOUR, 24 * HOUR)
TOLD_ONLY = Rule(2 * HOUR)


def step(rule: Rule, now: IdleReading, kept: IdleState) -> tuple[Action, IdleState]:
    """Go on to a look, after which a page in sight asks."""
    action, kept = idle_policy.step(rule, now, kept)
    return action, kept.after_shown()


Spells = tuple[tuple[float, float], ...]
"""Hours from and to."""


@dataclass(frozen=True)
class User:
    """What a notebook of a user's is like in a week, and what is done about it: hours of the week, and steps.

    It holds memory from hour 1 on. All spells are hours of the week.
    """

    does: tuple[tuple[float, str], ...] = ()
    used: Spells = ((0, 1),)
    unknown: Spells = ()
    unseen: Spells = ()
    not_today: tuple[float, ...] = ()
    rule: Rule = USUAL
    held: int = 5 * GIB
    parks: bool = False


USERS = {
    "ann goes home for the week": User(((3, "tell"), (25, "stop"))),
    "bob's is parked": User(((3, "tell"), (7, "park")), rule=PARKS, parks=True),
    "bea's cannot be parked": User(((3, "tell"), (7, "park"), (25, "stop")), rule=PARKS),
    "bo says not today": User(((3, "tell"), (31, "park")), not_today=(4,), rule=PARKS, parks=True),
    "bess comes back to one that was not parked": User(
        ((3, "tell"), (7, "park"), (12, "tell"), (16, "park"), (34, "stop")), used=((0, 1), (9.5, 10)), rule=PARKS
    ),
    "cy runs a cell every hour": User(used=tuple((hour, hour + 0.02) for hour in range(WEEK))),
    "dan computes all week": User(used=((0, WEEK),)),
    "eve says not today once": User(((3, "tell"), (49, "stop")), not_today=(4, 30, 40), used=((0, 1),)),
    "fay comes back after a day of being told": User(
        ((3, "tell"), (26, "tell"), (48, "stop")), used=((0, 1), (23.5, 24))
    ),
    "gil's figures are unknown for a day": User(((27, "tell"), (49, "stop")), unknown=((2, 26),)),
    "hal's figures go in the middle of a stretch": User(((3, "tell"), (49, "stop")), unknown=((4, 28),)),
    "ida's machine sleeps every night": User(
        ((3, "tell"), (49, "stop")), unseen=tuple((day * 24 + 10, day * 24 + 22) for day in range(7))
    ),
    "jo's collector goes for half an hour each evening": User(
        ((3, "tell"), (25.5, "stop")), unknown=tuple((day * 24 + 20, day * 24 + 20.5) for day in range(7))
    ),
    "kim holds a trifle": User(held=200 * MIB),
    "lee is in a group that is only told": User(((3, "tell"),), rule=TOLD_ONLY),
}


def within(hour: float, spells: Spells) -> bool:
    return any(begin <= hour < end for begin, end in spells)


def week(user: User) -> Iterator[tuple[float, str]]:
    """Give what is done, with the hour; it is done to nobody in use."""
    kept, held, stopped = IdleState(), user.held, False
    said = list(user.not_today)
    for look in range(int(WEEK * HOUR / LOOK)):
        hour = look * LOOK / HOUR
        if within(hour, user.unseen) or stopped:
            continue
        while said and said[0] <= hour:
            kept = kept.after_put_off()
            said.pop(0)
        used = None if within(hour, user.unknown) else within(hour, user.used)
        now = IdleReading(LOOK, None if used is None else held, used)
        action, kept = step(user.rule, now, kept)
        if action:
            assert now.used is False
            yield round(hour, 1), action
        held = 0 if action == "park" and user.parks else held
        stopped = action == "stop"


@pytest.mark.parametrize("name", USERS)
def test_each_step_comes_at_its_hour_and_no_other_does(name: str) -> None:
    assert tuple(week(USERS[name])) == USERS[name].does


looks = st.lists(
    st.builds(
        IdleReading,
        stands_for=st.floats(0, 1e6),
        held=st.sampled_from([None, 0, 200 * MIB, 5 * GIB]),
        used=st.sampled_from([None, False, False, False, True]),
    ),
    max_size=60,
)
rules = st.lists(st.floats(1, 900), min_size=3, max_size=3, unique=True).map(lambda times: Rule(*sorted(times)))


@given(rules, looks, st.sets(st.integers(0, 60)))
def test_whatever_is_seen_no_step_comes_before_its_time_or_without_the_one_before(
    rule: Rule, seen: list[IdleReading], said: set[int]
) -> None:
    kept, idle, told, snoozed = IdleState(), 0.0, math.inf, 0
    for number, now in enumerate(seen):
        if number in said:
            kept = kept.after_put_off()
            snoozed += kept.rests > 0 and kept.put_off
        action, kept = step(rule, now, kept)
        passed = min(now.stands_for, 60.0)
        idle = 0.0 if now.used or now.held in (0, 200 * MIB) else idle + passed
        if idle == 0.0 and not action:
            told = math.inf if now.used or now.held in (0, 200 * MIB) else told
        if action:
            assert now.used is False
            assert now.held == 5 * GIB
            assert kept.idle <= idle + 1e-6
        if action == "tell":
            assert idle >= rule.notify - 1e-6
            told = idle
        elif action == "park":
            assert idle >= rule.park - 1e-6
        elif action:
            assert idle - told >= rule.stop - rule.notify - 1e-6


@given(rules, looks, st.integers(0, 60))
def test_a_look_that_is_missing_or_unknown_only_delays(rule: Rule, seen: list[IdleReading], missing: int) -> None:
    def last(some: list[IdleReading]) -> IdleState:
        kept = IdleState()
        for now in some:
            _, kept = step(rule, now, kept)
        return kept

    idle = [now._replace(held=5 * GIB, used=False) for now in seen]
    less = [now for number, now in enumerate(idle) if number != missing]
    unknown = [now._replace(used=None) if number == missing else now for number, now in enumerate(idle)]

    assert last(less) == last(unknown)
    assert last(less).idle <= last(idle).idle


def test_what_is_due_is_counted_from_when_the_owner_was_told() -> None:
    late = IdleState(idle=11 * HOUR, told=10 * HOUR)

    assert late.due(USUAL) == late._replace(asked=True).due(PARKS) == {"stop": 21 * HOUR}
    assert late.due(PARKS) == {"park": 0.0, "stop": 21 * HOUR}
    assert late.after_put_off().due(USUAL) == {"stop": 45 * HOUR}
    assert late.after_put_off().after_put_off() == late.after_put_off()
    assert IdleState().after_put_off() == IdleState()


@pytest.mark.parametrize(
    ("rule", "steps"), [(USUAL, ["tell"]), (PARKS, ["tell", "park"]), (Rule(park=6 * HOUR), ["park"])]
)
def test_who_has_no_page_in_sight_is_to_be_told_once_and_keeps_all(rule: Rule, steps: list[str]) -> None:
    kept, done = IdleState(), []
    for _ in range(int(48 * HOUR / LOOK)):
        action, kept = idle_policy.step(rule, IdleReading(LOOK, 5 * GIB, used=False), kept)
        done += [action] if action else []

    assert (done, kept.told) == (steps, None)
    assert kept.after_shown().due(USUAL) == {"stop": 22 * HOUR}  # the hours of the rule
    assert kept.after_shown().after_shown() == kept.after_shown()
    assert IdleState().after_shown() == IdleState()


def test_who_is_told_late_has_the_hours_of_the_rule_all_the_same() -> None:
    kept = IdleState(idle=100 * HOUR)
    done = []
    for look in range(int(30 * HOUR / LOOK)):
        action, kept = step(USUAL, IdleReading(LOOK, 5 * GIB, used=False), kept)
        done += [(look * LOOK // HOUR, action)] if action else []

    assert done[:2] == [(0, "tell"), (22, "stop")]


FILE = {"notify": "2h", "park": "6h", "stop": "24h", "groups": {"staff": {"stop": "never"}, "1001": {"park": "4h"}}}


@pytest.mark.parametrize(
    ("groups", "rule"),
    [
        ((), PARKS),
        (("staff", "1001"), PARKS._replace(stop=math.inf)),
        (("1001",), PARKS._replace(park=4 * HOUR)),
        (("", "others"), PARKS),
    ],
)
def test_the_first_group_of_the_file_counts_and_the_rest_is_everybodys(groups: tuple[str, ...], rule: Rule) -> None:
    assert rule_of(FILE, groups) == rule


@pytest.mark.parametrize(
    "change",
    [
        {"stop": "1h"},
        {"notify": "never"},
        {"stop": 6},
        {"stop": "6 weeks"},
        {"park": "24h"},
        {"park": 6},
        {"hours": "2h"},
        {"groups": ["staff"]},
        {"groups": {"staff": "2h"}},
        {"groups": {"staff": {"stop": "1h"}}},
        {"groups": {"staff": {"park": "25h"}}},
        None,
    ],
)
def test_a_flawed_table_is_of_no_use_to_anybody(change: dict[str, object] | None) -> None:
    with pytest.raises(PolicyError, match=r"\[idle\]"):
        rule_of("2h" if change is None else FILE | change, ())
