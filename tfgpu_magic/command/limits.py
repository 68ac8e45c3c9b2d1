"""`tfgpu limits`: the administrator's GPU memory limits, by the program in `root`, which takes this process's place."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

_MORE = """\
The limits are those of the table [limits] in /etc/tfgpu_magic.toml. NVIDIA's
driver 615 and later holds all processes of a user to them together, on each GPU,
whatever they run. Only root may set them; the service tfgpu-limits does so all
the time. With an older driver this says so, sets nothing, and ends with 0."""


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.epilog = _MORE
    only = parser.add_mutually_exclusive_group()
    for option, meaning in (
        ("--show", "show what the driver holds each user to, what they hold, and what the file says (the default)"),
        ("--dry-run", "show only what the file would change, and change nothing"),
        ("--once", "set the limits now; the exit status is 1 if one is not in force"),
        ("--watch", "set them now, and again when a user comes or the file changes"),
        ("--clear", "remove the limits that this command or the service has set"),
    ):
        only.add_argument(option, action="store_const", const=option, dest="action", default="--show", help=meaning)


def run(options: argparse.Namespace) -> Callable[[], int]:
    """Return what puts the program in this process's place: an interpreter that reads root's own modules only."""
    command = [sys.executable, "-I", "-m", "tfgpu_magic.root", options.action]

    def execute() -> int:
        sys.stdout.flush()
        os.execv(sys.executable, command)  # noqa: S606  # no shell is meant

    return execute
