"""Thirty users' servers in processes of their own, without the weight of thirty Pythons: `python -m tests.lab.hall`.

Each is a fork that has become its user, and feeds its streams as Jupyter's server does; so are the collectors that they
start, for other users may not be able to reach this Python. At each line on standard input, it answers with what each
stream shows: by user, a list of streams, each what is wrong and its rows, as `Shown`.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tests.lab.users import DUMPABLE
from tests.views.test_message import applied
from tfgpu_magic.model.rows import Notebook
from tfgpu_magic.monitor import collector, live
from tfgpu_magic.monitor.table.fetch import Watcher
from tfgpu_magic.server.feed import Client, Feed

FIRST, USERS, STREAMS = 100_000, 30, 100
"""The number of the first user, and how many users and streams there are."""
LINGER, PATIENCE = 3.0, 5.0
"""How long a user's collector stays, and waits for a reading, in seconds."""


class Page:
    """A stream that takes whatever it is sent."""

    def __init__(self, feed: Feed) -> None:
        self.state: dict[str, Any] = {}
        feed.join(Client(self._take, lambda: None))

    def shown(self) -> tuple[str, list[tuple[str, str, str, int]]]:
        """Return what is wrong, in a word, and of each row the GPU, whose it is, that user's name, and the bytes."""
        state = self.state
        wrong = "error" if not state or "error" in state else "stale" if "stale" in state else ""
        rows = [
            (row["gpu"], row["who"], row["owner"] if row["who"] == "other" else "", row.get("held", -1))
            for row in state.get("rows", {}).values()
        ]
        return wrong, sorted(rows)

    def _take(self, text: bytes) -> asyncio.Future[None]:
        message = json.loads(text)
        self.state = message["state"] if message["type"] == "full" else applied(self.state, message["patch"])
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        taken.set_result(None)
        return taken


def main() -> None:
    """Be thirty users, until standard input ends."""
    folder = Path(sys.argv[1])
    # A fork finds imported what its user could not read, and the driver loaded.
    with closing(Watcher()) as watcher:
        watcher.see()
    os.environ["TFGPU_MAGIC_DIR"] = str(folder / "hall")
    collector.main(0.0, PATIENCE)
    Path("/proc/self/comm").write_text("hall")
    users = []
    for number in range(USERS):
        user = FIRST + number
        home = folder / str(user)
        home.mkdir(mode=0o700)
        os.chown(home, user, user)
        asked, ask = os.pipe()
        answers, answer = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                _become(user)
                os.environ["TFGPU_MAGIC_DIR"] = f"{home}/board"
                setattr(live, "launch", _launch)  # noqa: B010  it is another's name there
                asyncio.run(_serve(asked, answer, STREAMS // USERS + (number < STREAMS % USERS)))
            finally:
                os._exit(0)
        users.append((pid, ask, os.fdopen(answers)))
    for _ in sys.stdin:
        for _, ask, _ in users:
            os.write(ask, b"\n")
        print(json.dumps([json.loads(told.readline()) for *_, told in users]), flush=True)
    for pid, *_ in users:
        os.kill(pid, signal.SIGKILL)


def _become(user: int) -> None:
    libc = ctypes.CDLL(None)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    libc.prctl(DUMPABLE, 1, 0, 0, 0)


def _launch(*_: object) -> None:
    """Start a user's collector as `starting.launch` does, but as a fork."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if not os.fork():
            collector.main(LINGER, PATIENCE)
    finally:
        os._exit(0)


async def _serve(asked: int, answer: int, streams: int) -> None:
    """Feed some streams, and say what they show at each byte on a pipe."""
    feed = Feed(_kernels, logging.getLogger("hall"))
    pages = [Page(feed) for _ in range(streams)]

    def tell() -> None:
        for _ in os.read(asked, 100):
            os.write(answer, json.dumps([page.shown() for page in pages]).encode() + b"\n")

    asyncio.get_running_loop().add_reader(asked, tell)
    with suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().create_future()


async def _kernels() -> Mapping[int, Notebook]:
    return {}


if __name__ == "__main__":
    main()
