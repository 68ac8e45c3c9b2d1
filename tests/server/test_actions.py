"""Who is ended, by itself: what is known of a process may change meanwhile, and nothing is left open."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest

from tfgpu_magic.monitor.owners.pids import began
from tfgpu_magic.server import actions

SELF = os.getpid()


def test_what_parks_first_is_not_killed_while_nothing_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known, done = iter(["it parks itself", None, ""]), list[str]()
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: done.append("waited"))
    monkeypatch.setattr(actions, "parts", lambda _: [lambda _: next(known)])
    monkeypatch.setattr(actions, "time", clock)
    monkeypatch.setattr(os, "kill", lambda *_: done.append("killed"))
    actions._kill_when_parked(SELF, began(SELF) or 0)

    assert done == ["waited", "waited", "killed"]


def test_the_server_itself_is_forbidden_and_not_unknown() -> None:
    assert actions.end(SELF, began(SELF) or 0, signal.SIGTERM, {}, computes=False) == 403


@pytest.mark.parametrize("off", [0, 1])
def test_no_descriptor_of_a_process_stays_open(monkeypatch: pytest.MonkeyPatch, off: int) -> None:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    monkeypatch.setattr(actions, "_descriptor", lambda _: descriptor)
    actions.end(SELF, (began(SELF) or 0) + off, signal.SIGTERM, {}, computes=False)

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
