"""The idle ladder of docs/lab.md, with a real Hub, as several users meet it. Hours are minutes here."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil

from scripts._hub_rig import Hub, wait_for
from scripts._hub_users import Kernel
from tests.lab.prometheus import Prometheus
from tests.sizes import GIB

if TYPE_CHECKING:
    from scripts._lab import Lab

USERS = ("ann", "bob", "cy", "eve")
"""Idle; idle; running a cell; running cells now and then. Nobody has JupyterLab open, but what its pages ask, all
servers are asked."""
HOLD = "import tensorflow as tf\nx = tf.zeros([256, 1024, 1024]) + 1"
"""Holds a GiB."""
PATIENCE = 600.0
"""Seconds in which the last step has come: it is due after four minutes."""


class Ladder:
    """What the users do, and what becomes of their kernels.

    Args:
        lab: their machine.
        hub: their Hub.
    """

    def __init__(self, lab: Lab, hub: Hub) -> None:
        self.lab, self.hub, self.kernels = lab, hub, dict[str, Kernel]()
        self.told = dict.fromkeys(USERS, False)
        self.prometheus = Prometheus("http://127.0.0.1:9090")

    def begin(self) -> None:
        """Start all servers and kernels, and have each kernel hold memory."""
        for name, user in self.hub.users.items():
            self.hub.serve(user)
            kernel = self.kernels[name] = self.hub.start_kernel(user)
            kernel.run(HOLD)
        self.kernels["cy"].begin("import time\nwhile True: time.sleep(1)")

    def idle(self, name: str) -> dict[str, Any]:
        """Return what a user's server says of the notebook, as it does to each page; empty where there is none."""
        user = self.hub.users[name]
        notebooks = json.loads(self.hub.ask(f"/user/{user.name}/tfgpu-magic/idle", user.token).text)["notebooks"]
        return dict(notebooks[0]) if notebooks else {}

    def held(self, name: str) -> int:
        """Return the bytes that a user's kernel holds, by the driver's account."""
        pid = self.kernels[name].pid
        return sum(row.held for row in self.lab.machine.processes() if row.pid == pid)

    def look(self) -> None:
        """Let a while pass, in which eve runs a cell, and note who was told."""
        self.kernels["eve"].run("1 + 1")
        for name in USERS:
            with contextlib.suppress(OSError, ValueError):  # while the Hub or the server is away
                self.told[name] |= self.idle(name).get("told") is not None
        time.sleep(2)

    def until(self, so: Callable[[], object]) -> bool:
        """Wait until something is so, and tell whether it is."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.look()
            with contextlib.suppress(OSError, ValueError, psutil.Error):
                if so():
                    return True
        return False

    def restart(self) -> None:
        """Have what runs as a service start again, each at another time."""
        for name in ("tfgpu-collector", "jupyterhub", "tfgpu-exporter"):
            self.lab.do(f"systemctl restart {name}")
        wait_for(self.hub, lambda: True)


def promises(ladder: Ladder) -> Iterator[tuple[str, bool]]:
    """Give one promise after another, and whether it holds."""
    users = ladder.hub.users
    ladder.begin()
    figures = "sum by (username) (tfgpu_magic_held_bytes) >= 2^30"

    def scraped() -> bool:
        answer = ladder.prometheus.ask(figures, time.time())
        return {dict(labels)["username"] for labels in answer} == {user.name for user in users.values()}

    yield "Prometheus has what each user holds.", ladder.until(scraped)
    plan = ladder.kernels["eve"].run("%tf_gpu plan limit 90%")
    yield "A share is of what the driver allows the user.", "your 8 GiB" in plan
    look = "import sys\n!{sys.executable} -m tfgpu_magic status"
    told = ladder.until(lambda: "GiB-hours" in ladder.kernels["eve"].run(look))
    yield "`tfgpu status` tells eve her own GPU-hours.", told
    for name in ("ann", "bob"):
        yield f"{name}, idle, is told.", ladder.until(partial(ladder.told.get, name))
    ladder.restart()
    alive = all(ladder.kernels[name].pid for name in ("cy", "eve"))  # the others' may be due
    yield "Kernels outlive a restart of Hub, collector and exporter.", alive
    for name in ("ann", "bob"):
        yield f"{name}'s kernel is shut down.", ladder.until(lambda: not ladder.kernels[name].pid)  # noqa: B023  # at once
        yield f"{name}'s server stays.", bool(ladder.hub.server(users[name]))
    for name in ("cy", "eve"):
        alone = ladder.held(name) >= GIB and not ladder.told[name]
        yield f"{name}, who works, is left alone, and was told nothing.", alone


def hold(lab: Lab, hub: Hub) -> int:
    """Tell of each promise whether it holds, and return 1 if one does not."""
    began, good = time.monotonic(), True
    for promise, holds in promises(Ladder(lab, hub)):
        print(f"{time.monotonic() - began:4.0f} s  {'ok       ' if holds else 'NOT GOOD '} {promise}", flush=True)
        good &= holds
    return 0 if good else 1
