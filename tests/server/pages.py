"""Pages that follow a feed in a test: each keeps what it was sent, and what they are sent comes from no driver."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from tornado.websocket import WebSocketClosedError

from tests.slack import SLACK
from tfgpu_magic.monitor.owners import Notebook
from tfgpu_magic.server.feed import Client, Feed
from tfgpu_magic.views import message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

LOG = logging.getLogger("test")


class Counting:
    """A board reader that sees something new each time, and counts its looks; they hang while `go` is clear."""

    def __init__(self, _: logging.Logger, **__: float) -> None:
        self.count = 0
        self.settled = True
        self.go = threading.Event()
        self.go.set()
        self.asked: list[Mapping[int, Notebook]] = []
        self.processes: list[bool] = []

    def see(self, notebooks: Mapping[int, Notebook], *, processes: bool) -> message.State:
        self.go.wait(10)
        self.count += 1
        self.processes.append(processes)
        self.asked.append(notebooks)
        return {"time": float(self.count), "gpus": {}, "rows": {}}

    def full(self, sequence: int, state: message.State, every: float) -> bytes:
        self.go.wait(10)
        return json.dumps({"type": "full", "sequence": sequence, "state": state, "every": every}).encode()

    def close(self) -> None:
        self.count = -1


class Page:
    """A client of the feed, and what it was sent; one that `takes` nothing leaves each message on its way."""

    def __init__(self, feed: Feed, *, takes: bool = True) -> None:
        self.texts: list[bytes] = []
        self.takes = takes
        self.closed = False
        self.taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.client = Client(self.write, self.close)
        feed.join(self.client)

    def write(self, text: bytes) -> asyncio.Future[None]:
        if self.closed:
            raise WebSocketClosedError
        self.texts.append(text)
        self.taken = asyncio.get_running_loop().create_future()
        if self.takes:
            self.taken.set_result(None)
        return self.taken

    def close(self) -> None:
        self.closed = True

    @property
    def kinds(self) -> list[str]:
        return [json.loads(text)["type"] for text in self.texts]

    async def until(self, promise: Callable[[], object]) -> None:
        """Wait until it is so, as `tests.waiting` does, and let the feed go on meanwhile."""
        end = time.monotonic() + 5 * SLACK
        while not promise():
            assert time.monotonic() < end, "not within 5 s"
            await asyncio.sleep(0.01)


async def nobody() -> dict[int, Notebook]:
    """Return no notebooks, as managers do that have no kernels."""
    return {}


def with_feed(
    test: Callable[[Feed], Awaitable[None]], kernels: Callable[[], Awaitable[Any]] = nobody
) -> Callable[[], None]:
    """Make a function that runs a test with a feed that asks `kernels` for notebooks, and ends the feed after it."""

    async def run() -> None:
        feed = Feed(kernels, LOG, every=0.01)
        await test(feed)
        feed.close()
        await asyncio.sleep(0.05)

    return lambda: asyncio.run(run())
