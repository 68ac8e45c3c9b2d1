"""The collector as a service of the machine, which reads the GPUs for all users: `tfgpu collect`.

It is the collector that a user has, with three differences. It writes the machine's board, and beside it who has held
how much for how long (`counters`); it stays when nobody looks; and of processes it reads nothing but
/proc/PID/{stat,status,cgroup}. No user's path, report or variable is read.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.lab.counters import UsageTotalsFiles
from tfgpu_magic.machine.board.machine_board import SYSTEM_USERS, MachineDirectory, folder
from tfgpu_magic.machine.board.viewers import PROCESS_NAME
from tfgpu_magic.machine.collector import CollectorConfig, collect
from tfgpu_magic.machine.owners.holders import read_holder

CONFIG = CollectorConfig(linger=math.inf, read_holder=read_holder, idle_kernels=lambda _: {}, counter=UsageTotalsFiles)
"""Nobody's looks keep it, no process is opened, no kernel reports to it, and hours are counted."""


def serve(config: CollectorConfig = CONFIG) -> None:
    """Be the machine's collector, until it is stopped or the GPUs cannot be read for long.

    Args:
        config: how it runs.

    Raises:
        MonitorError: the board's directory is not there or not this user's, another service writes to it, or the GPUs
            cannot be read.
    """
    user = os.geteuid()
    with contextlib.closing(_directory(user)) as place:
        if place.owner != user:
            raise MonitorError(f"{place.path} belongs to user {place.owner}, and this is user {user}.")
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(PROCESS_NAME)
        if not collect(place, config):
            raise MonitorError("another collector serves this machine.")
    raise MonitorError("the GPUs could not be read, or the board was removed. `tfgpu doctor` says what is wrong.")


def _directory(user: int) -> MachineDirectory:
    """Open the board's directory; on a simulated machine it is made here, where there is no systemd."""
    path = folder()
    if "TFGPU_SIMGPU" in os.environ:
        path.mkdir(mode=0o755, exist_ok=True)
    elif not 0 < user <= SYSTEM_USERS:
        raise MonitorError(
            f"this is user {user}. Run it as a user of its own that is no person's, as the unit "
            "tfgpu-collector.service does; it needs nothing of root's."
        )
    try:
        return MachineDirectory()
    except FileNotFoundError:
        raise MonitorError(
            f"{path} is not there. The unit tfgpu-collector.service has systemd make it; without systemd, root does: "
            f"install -d -o tfgpu {path}"
        ) from None
