"""Starts a process of the user's that outlives its starter, as the collector does, and is nobody's child."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.board.lockfile import LIBRARIES, PROCESS_NAME
from tfgpu_magic.probe import nvml_path

if TYPE_CHECKING:
    from tfgpu_magic.monitor.board.directory import BoardDirectory

_KEPT = ("TFGPU_", "PATH", "HOME", "LANG", "LC_")
"""Prefixes of the variables that a collector gets; it gets none of a notebook's secrets."""
_ENDED = re.compile(rf"(\d+) \({PROCESS_NAME}\) Z 1 ")
"""How the system shows one of ours that has ended, and is a child of process 1. Source: proc_pid_stat(5)."""


def environment(*, simulated: bool) -> dict[str, str]:
    """Return the variables of a process that calls the driver: a few of this one's.

    It searches for the driver's library where the system does: a search path that was set for a kernel is for that
    kernel alone. A simulated machine's library is found by that path only.
    """
    kept = (*_KEPT, "LD_") if simulated else _KEPT
    found = {name: value for name, value in os.environ.items() if name.startswith(kept)}
    return found if simulated else {**found, LIBRARIES: os.environ.get("LD_LIBRARY_PATH", "")}


def launch(code: str, options: tuple[str, ...], place: BoardDirectory) -> None:
    """Start a process that outlives this one, in a session of its own, with only a few of this one's variables.

    It gets its directory.

    Args:
        code: what it runs; its arguments are the options, and after them its search path.
        options: what else it is told.
        place: where the board is.
    """
    if os.getpid() == 1:
        _reap()
    variables = environment(simulated=place.simulated)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code, *options, *nvml_path()],
        env={**variables, "TFGPU_MAGIC_DIR": str(place.path)},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def wait() -> None:
        process.wait()  # from here, so that the thread is known for ours

    try:
        threading.Thread(target=wait, name="tfgpu_magic-starter", daemon=True).start()
    except RuntimeError:  # none starts any more: Python ends
        process.wait()


def _reap() -> None:
    """Reap what was started here and has ended, as process 1 must, whose children they become when their starters end.

    Other processes 1 reap all of their children. Ours are recognised by their names, since other code may wait for
    other children.
    """
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            if (ended := _ENDED.match(stat.read_text())) is not None:
                os.waitpid(int(ended[1]), os.WNOHANG)
