"""Finds what users are called, by their numbers, and for whom a process in a container counts."""

from __future__ import annotations

import contextlib
import os
import pwd
from functools import lru_cache, partial
from threading import Thread

from tfgpu_magic.ground.bounded import run_within
from tfgpu_magic.ground.process_kind import SIMULATED, SIMULATED_USER
from tfgpu_magic.machine.owners.pids import read_text, user_of

SUBORDINATES = "/etc/subuid"
"""The numbers that users may have in containers of their own. Source: subuid(5)."""
USER_TIMEOUT = 0.25
"""Seconds to wait for a name: a directory service may be slow, or away."""

_owners: dict[str, int] = {}
_hanging: list[Thread] = []


class Users:
    """The names of users, each asked for until it is found: a directory service that is away knows nobody."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._hanging: list[Thread] = []

    def name(self, number: int) -> str:
        """Return the name of a user; the number of one who has none, or as long as it cannot be had."""
        found = self._known.get(number)
        if found is None:
            found = run_within(USER_TIMEOUT, partial(user_name, number), self._hanging)
            if found is None:
                return str(number)
            if found != str(number):
                self._known[number] = found
        return found


def user_name(number: int) -> str:
    """Return the name of a user, however long that takes; on a simulated machine it may be set by `SIMULATED_USER`."""
    if SIMULATED in os.environ and (simulated := os.environ.get(SIMULATED_USER)):
        return simulated
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return str(number)


def effective_user(pid: int) -> int:
    """Return the number of the user for whom a process counts: its own user, but in a rootless container its owner.

    A number of /etc/subuid may be a user's of a directory, too. So a process is in a container only if the map of its
    user namespace has the number in a range that /etc/subuid gives to the owner: nobody else can have made it. A range
    of one number is nobody's proof: each user can map the own one. Source: user_namespaces(7), newuidmap(1).

    Raises:
        OSError: the process has ended, or is hidden.
    """
    number = user_of(pid)
    for name, start, count in _ranges():
        if 0 <= number - start < count:
            for line in read_text(pid, "uid_map").splitlines():
                _, first, size = map(int, line.split())
                if size > 1 and 0 <= number - first < size and start <= first and first + size <= start + count:
                    return _range_owner(name, number)
    return number


def _ranges() -> tuple[tuple[str, int, int], ...]:
    try:
        return _read_ranges(SUBORDINATES, os.stat(SUBORDINATES).st_mtime_ns)
    except OSError:
        return ()


@lru_cache(1)
def _read_ranges(file: str, _: int) -> tuple[tuple[str, int, int], ...]:
    found = []
    with open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(ValueError):  # a comment, or an empty line
                name, start, count = line.split(":")
                found.append((name, int(start), int(count)))
    return tuple(found)


def _range_owner(name: str, number: int) -> int:
    """Return the number of who has a range; as long as it cannot be had, the one that is in it."""
    if name.isdecimal():
        return int(name)
    if name not in _owners:
        run_within(USER_TIMEOUT, partial(_find_owner, name), _hanging)
    return _owners.get(name, number)


def _find_owner(name: str) -> None:
    with contextlib.suppress(KeyError):  # a directory that is away knows nobody: it is asked again
        _owners[name] = pwd.getpwnam(name).pw_uid
