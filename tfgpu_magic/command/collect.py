"""`tfgpu collect`: reads the GPUs for all users of this machine, as a service."""

from __future__ import annotations

from tfgpu_magic.lab.service import serve
from tfgpu_magic.policy.word import ParsedLine

MORE = """\
It is for systemd: the unit tfgpu-collector.service runs it, as a user of its own
that has no rights but to read the GPUs. It writes the board /run/tfgpu_magic,
which every user's views read instead of starting a collector of their own.
Where it is stopped or dies, they start one, as without it.

It ends with exit status 2 where it cannot serve, and says why."""


def run(_: ParsedLine) -> int:
    """Serve, until there is a reason not to."""
    serve()
    return 0
