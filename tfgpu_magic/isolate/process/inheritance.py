"""What a program inherits from the process that starts it: a fork of the fork server has to be given it with its order.

Source: fork(2) and execve(2) on what a process keeps; proc(5), `Umask`, as umask(2) can read only what it changes.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path


def inheritance() -> tuple[Callable[[], object], ...]:
    """Return calls that give another process this one's umask, CPUs, nice value and resource limits."""
    umask = re.search(r"^Umask:\s*(\w+)", Path("/proc/self/status").read_text(errors="replace"), re.MULTILINE)
    limits = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
    return (
        *([partial(os.umask, int(umask[1], 8))] if umask else []),  # a sandbox may not tell it
        partial(os.sched_setaffinity, 0, os.sched_getaffinity(0)),
        partial(os.setpriority, os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0)),
        *(partial(resource.setrlimit, limit, resource.getrlimit(limit)) for limit in limits),
    )
