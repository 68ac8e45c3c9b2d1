"""Runs a function as another user, in a process of its own that can neither become root again nor is in root's groups.

It is forked, so that this Python may be one that other users cannot reach.
"""

from __future__ import annotations

import ctypes
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")
DUMPABLE = 4  # PR_SET_DUMPABLE of prctl(2): without it a process that has changed its user cannot read its own /proc


class Acted(NamedTuple):
    """What a function of a user's returned, or raised, and its process."""

    answer: Any
    pid: int


@contextmanager
def acting(uid: int, function: Callable[[], Any]) -> Iterator[Acted]:
    """Give what a function returns when a user calls it, or what it raises; its process stays until the block ends."""
    libc = ctypes.CDLL(None)
    ours, theirs = os.pipe()
    wait, end = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(end)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            libc.prctl(DUMPABLE, 1, 0, 0, 0)
            try:
                answer = function()
            except Exception as error:  # whatever it is, the test must be told
                answer = error
            with os.fdopen(theirs, "wb") as file:
                pickle.dump(answer, file)
            os.read(wait, 1)
        finally:
            os._exit(0)
    os.close(theirs)
    os.close(wait)
    try:
        with os.fdopen(ours, "rb") as file:
            text = file.read()
        yield Acted(pickle.loads(text), child)
    finally:
        os.close(end)
        os.waitpid(child, 0)


def as_user(uid: int, function: Callable[[], Any]) -> Any:
    """Return what a function returns when a user calls it; what it raises is returned, too."""
    with acting(uid, function) as acted:
        return acted.answer
