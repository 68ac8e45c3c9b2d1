"""Finds what users are called, by their numbers, and whose are the users in their containers."""

from __future__ import annotations

import contextlib
import os
import pwd
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfgpu_magic.host import SIMULATED, SIMULATED_USER
from tfgpu_magic.probe import within

if TYPE_CHECKING:
    from threading import Thread

SUBORDINATES = Path("/etc/subuid")
"""The numbers that users may have in containers of their own. Source: subuid(5)."""
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
    for one in (number, account(number)):
        with contextlib.suppress(KeyError):
            return pwd.getpwuid(one).pw_name
    return str(number)


def account(number: int) -> int:
    """Return the number of the user for whom another one counts: its own, but of one in a container its owner's."""
    with contextlib.suppress(OSError, ValueError, KeyError):  # as long as nobody knows the owner, it is its own
        return _account(number, SUBORDINATES.stat().st_mtime_ns)
    return number


@lru_cache(4096)
def _account(number: int, _: int) -> int:
    for line in SUBORDINATES.read_text().splitlines():
        name, start, count = line.split(":")
        if 0 <= number - int(start) < int(count):
            with contextlib.suppress(KeyError):
                return pwd.getpwuid(number).pw_uid  # no container's
            return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    return number
