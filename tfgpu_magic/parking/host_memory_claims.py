"""The claims of processes whose GPU state is on its way to host memory, so that no two count on the same room.

Users share no file that nobody could plant or block. So a claim is a socket by name, in no folder, which the system
takes away with its process, and which says who listens: only what the driver lists of that process counts, so nobody
can claim more than they hold of the GPUs. Two who claim at the same moment see each other, and may both be refused.
Processes of another container or network namespace are not seen. Source: unix(7), "Abstract sockets", `SO_PEERCRED`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from tfgpu_magic.model.snapshot import Snapshot

_LIST = Path("/proc/net/unix")
_NAME = "tfgpu_magic/park/"
_WHO = struct.Struct("3i")  # struct ucred: pid, uid, gid
_LOOKERS = 1024  # each leaves a connection that nobody takes


@contextlib.contextmanager
def claimed() -> Iterator[None]:
    """Let all users know that this process's GPU state is about to go to host memory, until the end of the block."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as claim:
        claim.bind(f"\0{_NAME}{secrets.token_hex()}")  # a name that nobody has taken before
        claim.listen(_LOOKERS)
        yield


def of_others(snapshot: Snapshot) -> int:
    """Return the bytes that other processes claim, by a snapshot that was read after `claimed` had begun."""
    pids = {_claimant(name) for name in _names()} - {os.getpid(), 0}
    return sum(row.held or 0 for row in snapshot.processes if row.pid in pids)


def _names() -> set[str]:
    with contextlib.suppress(OSError):
        words = _LIST.read_text(encoding="utf-8", errors="surrogateescape").split()
        return {word[1:] for word in words if word.startswith(f"@{_NAME}")}
    return set()


def _claimant(name: str) -> int:
    """Return the process that listens by a name, by the system's word; 0 where there is none any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking, contextlib.suppress(OSError):
        asking.setblocking(False)
        asking.connect(f"\0{name}")
        return int(_WHO.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _WHO.size))[0])
    return 0
