"""A client of the stream: it keeps what it was sent, and the state that this makes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import websocket

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
        closed: whether it has ended.
        say: sends a text to the server.
    """

    say: Callable[[str], object]

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.state: State = {}
        self.closed = False

    def read(self, connection: Any) -> None:
        """Take what is sent until the stream ends."""
        while text := received(connection):
            self.take(text)
        self.closed = True

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


def connect(server: Server, *, headers: dict[str, str] | None = None, **options: Any) -> Any:
    """Return a connection to the stream; `headers` are in the place of the one that has the token."""
    headers = {"Authorization": f"token {server.token}"} if headers is None else headers
    url = f"ws://{server.base}tfgpu-magic/stream"
    return websocket.create_connection(url, 60 * SLACK, header=headers, suppress_origin=True, **options)


def received(connection: Any) -> str:
    """Return the next message; "" where the stream has ended."""
    try:
        return str(connection.recv())
    except (websocket.WebSocketConnectionClosedException, ConnectionError):
        return ""


def end(connection: Any) -> None:
    """Close a connection, which the server may have ended."""
    connection.close()
    connection.shutdown()


@contextmanager
def streaming(server: Server, *, wait: float = 10) -> Iterator[Stream]:
    """Have a stream, until the block ends."""
    stream, connection = Stream(), connect(server)
    stream.say = connection.send
    thread = threading.Thread(target=stream.read, args=(connection,))
    thread.start()
    try:
        until(lambda: stream.messages, seconds=wait)
        yield stream
    finally:
        with contextlib.suppress(OSError, websocket.WebSocketException):  # the server may have ended it
            connection.send_close()  # to which the server answers, and the thread ends
        thread.join(60)
        connection.shutdown()


def refused(server: Server, *, headers: dict[str, str] | None = None) -> int:
    """Return the HTTP code that a stream is refused with; 101 if it is not."""
    try:
        end(connect(server, headers=headers))
    except websocket.WebSocketBadStatusException as error:
        return int(error.status_code)
    return 101
