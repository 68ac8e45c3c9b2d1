"""Whose a pid is: this notebook's, mine, or another user's, of whom nothing but the user name is read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Who = Literal["this", "mine", "other", "gone", "unknown"]
"""This kernel and its children; my other processes; other users'; ended; not a pid of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who is behind a pid.

    Attributes:
        pid: the process id.
        who: what it is to the one who looks.
        text: how people name it; as the process wrote it, so a view must escape it.
    """

    pid: int
    who: Who
    text: str


class Owners:
    """Finds owners, and remembers what it found for each process: a pid and the time when it was created.

    Args:
        kernel: the pid that is "this notebook"; by default the process that asks.
    """

    def __init__(self, kernel: int | None = None) -> None:
        self._kernel = os.getpid() if kernel is None else kernel
        self._seen: dict[int, tuple[float, Owner]] = {}

    def find(self, pids: Iterable[int]) -> dict[int, Owner]:
        """Find the owner of every pid.

        Where not one of them is, or was, a process of this machine, they are another pid namespace's (the host's, seen
        from a container), and all owners are unknown rather than gone.
        """
        before, self._seen = self._seen, {}
        owners = {pid: self._find(pid, before.get(pid)) for pid in pids}
        if all(owner.who == "gone" and pid not in before for pid, owner in owners.items()):
            return {pid: Owner(pid=pid, who="unknown", text="others") for pid in owners}
        return owners

    def _find(self, pid: int, before: tuple[float, Owner] | None) -> Owner:
        try:
            process = psutil.Process(pid)
            born = process.create_time()
            if before is None or before[0] != born:
                before = (born, self._name(process))
        except psutil.AccessDenied:
            return Owner(pid=pid, who="other", text="another user")
        except psutil.NoSuchProcess:
            if _hidden(pid):
                return Owner(pid=pid, who="other", text="another user")
            text = f"{before[1].text}, ended" if before else "a process that ended"
            return Owner(pid=pid, who="gone", text=text)
        self._seen[pid] = before
        return before[1]

    def _name(self, process: psutil.Process) -> Owner:
        if process.uids().real != os.getuid():  # asked first: root may read more of others, and does not
            return Owner(pid=process.pid, who="other", text=process.username())
        if process.pid == self._kernel:
            return Owner(pid=process.pid, who="this", text="this notebook")
        if any(parent.pid == self._kernel for parent in process.parents()):
            return Owner(pid=process.pid, who="this", text=f"this notebook's {_command(process)}")
        return Owner(pid=process.pid, who="mine", text=_notebook(process) or _command(process))


def _notebook(process: psutil.Process) -> str | None:
    """Name the notebook of a kernel: Jupyter Server gives each kernel the path of its notebook."""
    try:
        return PurePath(process.environ().get("JPY_SESSION_NAME", "")).name or None
    except psutil.AccessDenied:
        return None


def _command(process: psutil.Process) -> str:
    try:
        return short_command(process.name(), process.cmdline())
    except psutil.AccessDenied:
        return process.name()


def short_command(name: str, words: Sequence[str]) -> str:
    """Name a process by its program; Python, whatever its version is called, by its script or module. Never by more.

    Args:
        name: the process's name, used where there is no command line.
        words: its command line.
    """
    program = PurePath(words[0]).name if words else ""
    if not program.lower().startswith(("python", "pypy")):
        return program or name
    program = program.lower().rstrip("0123456789.")
    rest = iter(words[1:])
    for word in rest:
        if word in ("-W", "-X"):
            next(rest, None)
        elif word == "-m":
            return f"{program} -m {next(rest, '')}".rstrip()
        elif word == "-c":
            break
        elif not word.startswith("-"):
            return f"{program} {PurePath(word).name}"
    return program


def _hidden(pid: int) -> bool:
    """Tell a process that /proc hides (mounted with hidepid) from none: only to the first are signals forbidden."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False
