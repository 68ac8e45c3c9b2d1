"""A client of the stream: it keeps what it was sent, and the state that this makes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.jupyter import Server
from tests.slack import SLACK
from tests.views.test_message import applied
from tests.waiting import until
from tfgpu_magic.tell.page_json import VERSION

State = dict[str, Any]


class Stream:
    """One stream, read by a thread of its own.

    Attributes:
        messages: what was sent.
        state: what they make.
        closed: whether the server has ended it.
        say: sends a text to the server.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.state: State = {}
        self.closed = False
        self.say: Callable[[str], object] = lambda _: None

    def take(self, text: str) -> None:
        message = json.loads(text)
        assert message["version"] == VERSION
        if message["type"] == "full":
            self.state = message["state"]
        else:
            assert message["base"] == self.messages[-1]["sequence"]
            self.state = applied(self.state, message["patch"])
        self.messages.append(message)

    def until(self, promise: Callable[[State], object], seconds: float) -> State:
        """Wait until the state is so, and return it."""
        return until(lambda: self.state, lambda state: state and promise(state), seconds=seconds, every=0.02)


def rows(state: State) -> list[State]:
    """Return the rows of a state, those of GPU 0 first."""
    return sorted(state["rows"].values(), key=lambda row: (row["gpu"], row.get("pid", 0)))


def fresh(state: State) -> bool:
    return "stale" not in state and "error" not in state


@contextmanager
def streaming(server: Server, *, wait: float = 10) -> Iterator[Stream]:
    """Have a stream, until the block ends."""
    stream, loop, ready = Stream(), asyncio.new_event_loop(), threading.Event()

    async def read() -> None:
        connection = await websocket_connect(request(server))
        stream.say = lambda text: loop.call_soon_threadsafe(connection.write_message, text)
        try:
            while (text := await connection.read_message()) is not None:
                assert isinstance(text, str)
                stream.take(text)
                ready.set()
            stream.closed = True
            await end(connection, ended=True)
        except asyncio.CancelledError:
            await end(connection)

    def run() -> None:
        asyncio.set_event_loop(loop)
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(reading)
        loop.close()

    reading = loop.create_task(read())
    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(wait * SLACK), "nothing was sent"
        yield stream
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(reading.cancel)
        thread.join(60)


async def end(connection: WebSocketClientConnection, *, ended: bool = False) -> None:
    """Close a stream, and wait until it is, unless the server has ended it; after five seconds Tornado drops it."""
    connection.close()
    while not ended and await connection.read_message() is not None:
        pass


def request(server: Server, *, headers: dict[str, str] | None = None) -> HTTPRequest:
    headers = {"Authorization": f"token {server.token}"} if headers is None else headers
    return HTTPRequest(f"ws://{server.base}tfgpu-magic/stream", headers=headers)


def refused(server: Server, *, headers: dict[str, str] | None = None) -> int:
    """Return the HTTP code that a stream is refused with; 101 if it is not."""

    async def ask() -> int:
        try:
            connection = await websocket_connect(request(server, headers=headers))
        except HTTPClientError as error:
            return error.code
        await end(connection)
        return 101

    return asyncio.run(ask())
