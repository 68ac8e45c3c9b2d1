"""`tfgpu limits`: the administrator's GPU memory limits, by the program in `root`, which takes this process's place."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.policy.word import ParsedLine

MORE = """\
The limits are those of the table [limits] in /etc/tfgpu_magic.toml. NVIDIA's
driver 615 and later holds all processes of a user to them together, on each GPU,
whatever they run. Only root may set them; the service tfgpu-limits does so all
the time. With an older driver this says so, sets nothing, and ends with 0."""


def run(line: ParsedLine) -> Callable[[], int]:
    """Return what puts the program in this process's place: an interpreter that reads root's own modules only."""
    action, *more = line.flags or ["--show"]
    if more:
        raise PolicyError(f"Only one of {action} and {more[0]} can be done at a time.")
    command = [sys.executable, "-I", "-m", "tfgpu_magic.root", action]

    def execute() -> int:
        sys.stdout.flush()
        os.execv(sys.executable, command)  # noqa: S606  # no shell is meant

    return execute
