"""Who is ended, by itself: what is known of a process may change meanwhile, and nothing is left open."""

from __future__ import annotations

import os
import signal

import pytest

from tfgpu_magic.machine.owners.pids import start_time
from tfgpu_magic.server import actions

SELF = os.getpid()


def test_the_server_itself_is_forbidden_and_not_unknown() -> None:
    assert actions.end(SELF, start_time(SELF) or 0, signal.SIGTERM, {}, computes=False) == 403


@pytest.mark.parametrize("off", [0, 1])
def test_no_descriptor_of_a_process_stays_open(monkeypatch: pytest.MonkeyPatch, off: int) -> None:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    monkeypatch.setattr(actions, "_descriptor", lambda _: descriptor)
    actions.end(SELF, (start_time(SELF) or 0) + off, signal.SIGTERM, {}, computes=False)

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
