"""Waits until something is so: all tests that ask again and again do it here, with the limits of `tests.slack`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.slack import SLACK

T = TypeVar("T")


def until(
    ask: Callable[[], T],
    holds: Callable[[T], object] = bool,
    *,
    seconds: float = 30.0,
    every: float = 0.05,
    despite: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Ask again and again until the answer is as it should be, and return that answer.

    Args:
        ask: gives an answer.
        holds: tells whether the answer is as it should be; by default any true answer is.
        seconds: how long that may take, before it is multiplied by `SLACK`.
        every: the pause between two questions, in seconds.
        despite: what asking may fail with meanwhile.

    Raises:
        AssertionError: the time is over; the message shows the last answer.
        Exception: what the last question failed with, if `despite` allows it.
    """
    end = time.monotonic() + seconds * SLACK
    while True:
        over = time.monotonic() > end
        try:
            answer = ask()
            if holds(answer):
                return answer
        except despite:
            if over:
                raise
        else:
            assert not over, f"not so within {seconds * SLACK:g} s: {answer!r}"
        time.sleep(every)
