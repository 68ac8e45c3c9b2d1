"""The words of a restart, kept for the next `%load_ext` of a kernel that its front end starts anew by itself.

Colab starts a kernel anew when it has ended, and there is no Jupyter Server that could be asked for more. So the words
are written to a file in the board's directory, which only the user can read. They are used once, soon, and by the
same kernel: the one with the same connection file since the machine was started.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from tfgpu_magic.errors import MonitorError, Refused
from tfgpu_magic.monitor.directory import BoardDirectory

KEPT = 900.0
"""Seconds in which the words must be taken; later they would surprise whoever runs the notebook then."""


def starts_anew() -> bool:
    """Tell whether the front end of this kernel starts it anew when it has ended."""
    return "google.colab" in sys.modules


def keep(words: str, others: str, connection: Path) -> None:
    """Keep the words of a policy for the kernel's successor.

    Args:
        words: the policy for TensorFlow.
        others: that for the other frameworks; empty where nothing is asked of them.
        connection: the connection file, which both have.

    Raises:
        Refused: there is no place to keep them.
    """
    try:
        with BoardDirectory() as directory:
            descriptor = directory.open(_name(connection), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(descriptor, "w") as file:
                json.dump({"words": words, "others": others, "time": time.time(), "pid": os.getpid()}, file)
    except (MonitorError, OSError) as error:
        raise Refused(f"The words cannot be kept for the new kernel: {error}", verdict="") from error


def take(connection: Path) -> tuple[str, str] | None:
    """Return the words that this kernel's predecessor has kept, as `keep` got them, and forget them; None if none."""
    try:
        with BoardDirectory() as directory, os.fdopen(directory.open(_name(connection), os.O_RDONLY)) as file:
            directory.remove(_name(connection))  # before they are used: words that end a kernel end only one
            kept = json.load(file)
        words, age, pid = (str(kept["words"]), str(kept["others"])), time.time() - kept["time"], kept["pid"]
    except (MonitorError, OSError, ValueError, KeyError, TypeError):
        return None
    return words if 0 <= age <= KEPT and pid != os.getpid() else None


def _name(connection: Path) -> str:
    """Return the name of the file in the board's directory."""
    return f"restart-{connection.stem}"
