"""The states that a feed keeps: few of them, and none twice."""

from __future__ import annotations

import json

from tfgpu_magic.monitor.rows import Table
from tfgpu_magic.server.states import States
from tfgpu_magic.views import message


def test_few_states_are_kept_and_the_same_is_not_new() -> None:
    states = States(3)
    for number in (1, 1, 2, 3, 4):
        states.add(message.state(Table(time=number)))

    assert states.sequence == 4
    assert [states.tick(base) is None for base in (0, 1, 2, 3, 4)] == [True, True, False, False, False]
    assert json.loads(states.tick(4) or "")["patch"] == {"time": 4}
