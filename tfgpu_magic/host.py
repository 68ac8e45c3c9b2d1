"""What this process is to its user: a kernel, a session in a terminal, an isolated cell, or a program."""

from __future__ import annotations

import sys
from typing import Any, Literal, TypeAlias

Host: TypeAlias = Literal["kernel", "session", "cell", "program"]
"""What a process can be; only a kernel has a notebook, a menu to restart it from, and a server that can do so."""

in_worker = False
"""Whether this is the worker process of an isolated call; it sets this itself."""

preload: list[str] = []
"""The modules that isolated calls of this process find imported, beside those that `isolate` itself needs."""


def shell() -> Any:
    """Return this process's IPython shell; None where it has none. IPython is not imported for it."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def host() -> Host:
    """Return what this process is; IPython is not imported for it."""
    here = shell()
    if here is None:
        return "program"
    if getattr(here, "isolated", False):
        return "cell"
    return "kernel" if hasattr(here, "kernel") else "session"


def here() -> str:
    """Return the word for this process in texts for the user, for whom a kernel is "this notebook"."""
    what = host()
    return "notebook" if what == "kernel" else what


def magics(shell: Any) -> Any:
    """Return the magics of a shell; None where the extension is not loaded."""
    return shell.magics_manager.registry.get("TfGpuMagics")


def starting(shell: Any) -> bool:
    """Tell whether a shell is that of a kernel that starts, and has no cell yet below which to show anything."""
    return hasattr(shell, "kernel") and not getattr(shell, "parent_header", None)
