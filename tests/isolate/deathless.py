"""Where it is imported, no process in a session of its own can be killed."""

from __future__ import annotations

import os

_kill = os.kill


def _spare(pid: int, number: int) -> None:
    if os.getsid(pid) != pid:
        _kill(pid, number)


os.kill = _spare
