"""`tfgpu collect`: reads the GPUs for all users of this machine, as a service."""

from __future__ import annotations

import argparse

from tfgpu_magic.lab.service import serve

_MORE = """\
It is for systemd: the unit tfgpu-collector.service runs it, as a user of its own
that has no rights but to read the GPUs. It writes the board /run/tfgpu_magic,
which every user's views read instead of starting a collector of their own.
Where it is stopped or dies, they start one, as without it.

It ends with exit status 2 where it cannot serve, and says why."""


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.epilog = _MORE


def run(_: argparse.Namespace) -> int:
    """Serve, until there is a reason not to."""
    serve()
    return 0
