"""The idle ladder over a week of twelve users, as data: told and shut down as written, nobody in use touched."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import GIB, MIB
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.lab import ladder
from tfgpu_magic.lab.ladder import Action, IdleLook, IdleState, Rule, refused_steps, rule_of

HOUR = 3600.0
LOOK = 30.0
WEEK = 7 * 24
USUAL = Rule(2 * HOUR, 24 * HOUR)
TOLD_ONLY = Rule(2 * HOUR)


def step(rule: Rule, now: IdleLook, kept: IdleState) -> tuple[Action, IdleState]:
    """Go on to a look, after which a page in sight asks."""
    action, kept = ladder.step(rule, now, kept)
    return action, kept.shown()


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


USERS = {
    "ann goes home for the week": User(((3, "tell"), (25, "stop"))),
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


def week(user: User) -> Iterator[tuple[float, str, IdleLook]]:
    """Give what is done: the hour, the step, and what was seen then."""
    kept, stopped = IdleState(), False
    said = list(user.not_today)
    for look in range(int(WEEK * HOUR / LOOK)):
        hour = look * LOOK / HOUR
        if within(hour, user.unseen) or stopped:
            continue
        while said and said[0] <= hour:
            kept = kept.not_today()
            said.pop(0)
        used = None if within(hour, user.unknown) else within(hour, user.used)
        now = IdleLook(LOOK, None if used is None else user.held, used)
        action, kept = step(user.rule, now, kept)
        if action:
            yield hour, action, now
        stopped = action == "stop"


@pytest.mark.parametrize("name", USERS)
def test_each_step_comes_at_its_hour_and_no_other_does(name: str) -> None:
    done = [(round(hour, 1), action) for hour, action, _ in week(USERS[name])]

    assert done == list(USERS[name].does)


def test_nobody_in_use_is_touched() -> None:
    for user in USERS.values():
        assert all(now.used is False and now.held == user.held for _, _, now in week(user))


looks = st.lists(
    st.builds(
        IdleLook,
        stands_for=st.floats(0, 1e6),
        held=st.sampled_from([None, 0, 200 * MIB, 5 * GIB]),
        used=st.sampled_from([None, False, False, False, True]),
    ),
    max_size=60,
)
rules = st.lists(st.floats(1, 900), min_size=2, max_size=2, unique=True).map(lambda times: Rule(*sorted(times)))


@given(rules, looks, st.sets(st.integers(0, 60)))
def test_whatever_is_seen_no_step_comes_before_its_time_or_without_the_one_before(
    rule: Rule, seen: list[IdleLook], said: set[int]
) -> None:
    kept, idle, told, snoozed = IdleState(), 0.0, math.inf, 0
    for number, now in enumerate(seen):
        if number in said:
            kept = kept.not_today()
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
        elif action:
            assert idle - told >= rule.stop - rule.notify - 1e-6


@given(rules, looks, st.integers(0, 60))
def test_a_look_that_is_missing_or_unknown_only_delays(rule: Rule, seen: list[IdleLook], missing: int) -> None:
    def last(some: list[IdleLook]) -> IdleState:
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

    assert late.due(USUAL) == {"stop": 21 * HOUR}
    assert late.not_today().due(USUAL) == {"stop": 45 * HOUR}
    assert late.not_today().not_today() == late.not_today()
    assert IdleState().not_today() == IdleState()


def test_who_has_no_page_in_sight_is_to_be_told_once_and_keeps_all() -> None:
    kept, done = IdleState(), []
    for _ in range(int(48 * HOUR / LOOK)):
        action, kept = ladder.step(USUAL, IdleLook(LOOK, 5 * GIB, used=False), kept)
        done += [action] if action else []

    assert (done, kept.told) == (["tell"], None)
    assert kept.shown().due(USUAL) == {"stop": 22 * HOUR}  # the hours of the rule
    assert kept.shown().shown() == kept.shown()
    assert IdleState().shown() == IdleState()


def test_who_is_told_late_has_the_hours_of_the_rule_all_the_same() -> None:
    kept = IdleState(idle=100 * HOUR)
    done = []
    for look in range(int(30 * HOUR / LOOK)):
        action, kept = step(USUAL, IdleLook(LOOK, 5 * GIB, used=False), kept)
        done += [(look * LOOK // HOUR, action)] if action else []

    assert done[:2] == [(0, "tell"), (22, "stop")]


FILE = {"notify": "2h", "stop": "24h", "groups": {"staff": {"stop": "never"}, "1001": {"stop": "4h"}}}


@pytest.mark.parametrize(
    ("groups", "rule"),
    [
        ((), USUAL),
        (("staff", "1001"), USUAL._replace(stop=math.inf)),
        (("1001",), USUAL._replace(stop=4 * HOUR)),
        (("", "others"), USUAL),
    ],
)
def test_the_first_group_of_the_file_counts_and_the_rest_is_everybodys(groups: tuple[str, ...], rule: Rule) -> None:
    assert rule_of(FILE, groups) == rule


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file | {"stop": "1h"},
        lambda file: file | {"notify": "never"},
        lambda file: file | {"stop": 6},
        lambda file: file | {"stop": "6 weeks"},
        lambda file: file | {"hours": "2h"},
        lambda file: file | {"groups": {"staff": "2h"}},
        lambda file: file | {"groups": {"staff": {"stop": "1h"}}},
        lambda file: file | {"groups": ["staff"]},
        lambda _: "2h",
    ],
)
def test_a_flawed_table_is_of_no_use_to_anybody(change: Callable[[object], object]) -> None:
    with pytest.raises(PolicyError, match=r"\[idle\]"):
        rule_of(change(FILE), ())


@pytest.mark.parametrize(
    ("change", "places"),
    [
        ({}, ""),
        ({"park": "6h"}, "[idle]"),
        ({"park": 6}, "[idle]"),  # whatever it is
        ({"groups": {"staff": {"park": "25h"}}}, "[idle] groups.staff"),
        ({"park": "6h", "groups": {"staff": {"park": "25h"}, "1001": {}}}, "[idle] and in [idle] groups.staff"),
    ],
)
def test_park_is_refused_by_name_wherever_it_stands_and_the_other_steps_are_in_force(
    change: dict[str, object], places: str
) -> None:
    table = {"notify": "2h", "stop": "24h", **change}
    said = refused_steps(table, "the file")

    assert rule_of(table, ("staff",)) == USUAL
    assert bool(said) == bool(places)
    if places:
        assert said.startswith(f"`park` in {places}, from the file, is NOT in force: parking is being rebuilt")
        assert said.endswith("`notify` and `stop` are in force.")


@pytest.mark.parametrize("table", [None, "2h", {"groups": ["staff"]}, {"groups": {"staff": "2h"}}])
def test_no_table_and_a_flawed_one_have_no_step_to_refuse(table: object) -> None:
    assert refused_steps(table, "the file") == ""
