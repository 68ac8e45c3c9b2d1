"""What a cell or a call has changed in its process: proved by comparison, and never said of what is as it was."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfgpu_magic.isolate.values import changes


class Own:
    """An object of the user's, with a value that changes at each pickle."""

    def __init__(self) -> None:
        self.rows = [1]
        self.pickled = 0

    def __getstate__(self) -> dict[str, Any]:
        self.pickled += 1
        return vars(self)


def draw(rng: Any) -> None:
    rng.random()


CASES: list[tuple[Callable[[], Any], Callable[[Any], object], bool]] = [
    (lambda: [1, 2], lambda rows: rows.append(3), True),
    (lambda: [1], lambda rows: rows.extend(range(10**7)), True),
    (lambda: {"a": [1]}, lambda best: best["a"].append(2), True),
    (lambda: np.zeros(10), lambda array: array.fill(1), True),
    (lambda: np.zeros((1000, 100)), lambda array: array.__setitem__(5, 1.0), True),
    (lambda: np.random.default_rng(5), draw, True),
    (lambda: np.random.RandomState(5), lambda old: old.normal(), True),
    (lambda: {"rng": random.Random(5)}, lambda state: draw(state["rng"]), True),
    (lambda: iter([1, 2]), next, True),
    (lambda: itertools.cycle([1]), lambda _: None, False),
    (lambda: [1, {"a", "b"}, Own], repr, False),
    (lambda: Own(), lambda own: own.rows.append(2), False),  # it is another each time, so that nothing is proved
    (lambda: {"large": np.zeros(10**7)}, lambda large: large.update(y=1), True),
    (lambda: {"large": np.zeros(10**7)}, lambda large: large["large"].fill(1), False),  # which would take too long
    (lambda: list(range(10**7)), lambda tokens: tokens.append(1), False),
    (lambda: [threading.Lock()], lambda locks: locks.clear(), False),  # which cannot be pickled
]


@pytest.mark.parametrize(("make", "act", "seen"), CASES)
def test_a_change_is_seen_and_nothing_else_is_one(
    make: Callable[[], Any], act: Callable[[Any], object], seen: bool
) -> None:
    value = make()
    before = changes.digests({"value": value, "other": [1]})
    act(value)

    assert changes.changed_names(before, {"value": value, "other": [1]}) == ("value",) * seen
