"""Finds what users are called, by their numbers."""

from __future__ import annotations

import os
import pwd
from functools import partial
from typing import TYPE_CHECKING

from tfgpu_magic.host import SIMULATED, SIMULATED_USER
from tfgpu_magic.probe import within

if TYPE_CHECKING:
    from threading import Thread

USER_TIMEOUT = 0.25
"""Seconds to wait for a name: a directory service may be slow, or away."""


class Users:
    """The names of users, each asked for until it is found: a directory service that is away knows nobody."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._hanging: list[Thread] = []

    def name(self, number: int) -> str:
        """Return the name of a user; the number of one who has none, or as long as it cannot be had."""
        found = self._known.get(number)
        if found is None:
            found = within(USER_TIMEOUT, partial(user_name, number), self._hanging)
            if found is None:
                return str(number)
            if found != str(number):
                self._known[number] = found
        return found


def user_name(number: int) -> str:
    """Return the name of a user, however long that takes; on a simulated machine it may be set by `SIMULATED_USER`."""
    if SIMULATED in os.environ and (simulated := os.environ.get(SIMULATED_USER)):
        return simulated
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
