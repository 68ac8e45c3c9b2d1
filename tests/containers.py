"""Processes in a user namespace, as those of a rootless container are; their users have numbers of a range."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_NEWUSER = 0x10000000  # CLONE_NEWUSER of unshare(2)


@contextmanager
def container(users: str, *inside: int) -> Iterator[list[int]]:
    """Give the pids of processes in a new user namespace, which end with the block; skip where there can be none.

    Args:
        users: its map, a line such as ``0 200000 65536`` for each range.
        inside: the number of each process's user, as the namespace has it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    (told, tell), (mapped, go), (wait, end) = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(end)
            os.write(tell, b"." if libc.unshare(_NEWUSER) == 0 else b"!")
            os.read(mapped, 1)
            for user in inside:
                if not os.fork():
                    os.setresuid(user, user, user)
                    os.write(tell, f"{os.getpid()} ".encode())
                    os.read(wait, 1)
                    os._exit(0)
            os.read(wait, 1)
            while True:
                os.wait()
        finally:
            os._exit(0)
    try:
        os.close(wait)
        os.close(tell)
        if os.read(told, 1) != b".":
            pytest.skip("no user namespace can be made here")
        Path(f"/proc/{child}/uid_map").write_text(users)
        os.write(go, b".")
        text = ""
        while text.count(" ") < len(inside):
            text += os.read(told, 4096).decode()
        yield [int(pid) for pid in text.split()]
    finally:
        os.close(end)
        os.close(go)
        for one in (told, mapped):
            os.close(one)
        os.waitpid(child, 0)
