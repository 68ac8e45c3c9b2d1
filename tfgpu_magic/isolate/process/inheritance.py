"""What a program inherits from the process that starts it: a fork of the fork server has to be given it with its order.

Source: fork(2) and execve(2) on what a process keeps; proc(5), `Umask`, as umask(2) can read only what it changes.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a process passes on besides its environment; its resource limits, soft and hard, are by number."""

    directory: str
    umask: int | None
    cpus: frozenset[int]
    nice: int
    limits: Mapping[int, tuple[int, int]]

    @classmethod
    def current(cls) -> Inheritance:
        """Return that of this process; `FileNotFoundError` if its working directory was removed."""
        try:
            directory = str(Path.cwd())
        except FileNotFoundError as error:
            text = "The working directory was removed. Change to one that exists"
            raise FileNotFoundError(error.errno, text) from None
        umask = re.search(r"^Umask:\s*(\w+)", Path("/proc/self/status").read_text(errors="replace"), re.MULTILINE)
        limits = {number: resource.getrlimit(number) for number in _LIMITS}
        nice, cpus = os.getpriority(os.PRIO_PROCESS, 0), frozenset(os.sched_getaffinity(0))
        return cls(directory, int(umask[1], 8) if umask else None, cpus, nice, limits)

    def adopt(self) -> None:
        """Have this process as if the other had started it, as far as it may raise what it has."""
        os.chdir(self.directory)
        if self.umask is not None:  # else the fork server's is kept, as in a sandbox that does not tell it
            os.umask(self.umask)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self.cpus)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, self.nice)
        for number, limit in self.limits.items():
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(number, limit)
