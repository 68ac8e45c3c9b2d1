"""What this process is to the person before it: a kernel, a session in a terminal, an isolated cell, or a program."""

from __future__ import annotations

import sys
from typing import Any, Literal, TypeAlias

Host: TypeAlias = Literal["kernel", "session", "cell", "program"]
"""Only a kernel has a notebook, a menu to restart it from, and a server that can."""


def shell() -> Any:
    """Return this process's IPython; None where it has none, or nobody has imported it."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def host() -> Host:
    """Tell what it is; IPython is asked only where it is there."""
    here = shell()
    if here is None:
        return "program"
    if getattr(here, "isolated", False):
        return "cell"
    return "kernel" if hasattr(here, "kernel") else "session"


def here() -> str:
    """Say in a word what the person sees of it, who reads "this notebook" where it is a kernel."""
    what = host()
    return "notebook" if what == "kernel" else what


def starting(shell: Any) -> bool:
    """Tell whether a shell is that of a kernel that starts: it has no cell yet below which anything could be read."""
    return hasattr(shell, "kernel") and not getattr(shell, "parent_header", None)
