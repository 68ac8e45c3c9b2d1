"""What is served: the snapshot over REST, and the stream; to whom Jupyter Server says may read it."""

from __future__ import annotations

import json
import math
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web
from tornado.websocket import WebSocketHandler

from tfgpu_magic.server.feed import Client

FuncT = TypeVar("FuncT", bound="Callable[..., Any]")

try:
    from jupyter_server.auth.decorator import ws_authenticated
except ImportError:  # before 2.13, which JupyterLab 4.0 does not ask for

    def ws_authenticated(method: FuncT) -> FuncT:
        """Let in who is logged in, and lead nobody to a page."""

        @wraps(method)
        def asked(self: StreamHandler) -> Any:
            if self.current_user is None:
                raise web.HTTPError(403)
            return method(self)

        return cast("FuncT", asked)


if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgpu_magic.server.feed import Feed

RESOURCE = "tfgpu_magic"
"""What an Authorizer is asked about; the action is ``read``."""
LARGEST_MESSAGE = 1024
"""Bytes of a message from a client; one that sends more is cut off."""


class SnapshotHandler(APIHandler):
    """``GET <base>/tfgpu-magic/snapshot``: all there is to see, as a stream begins with it."""

    auth_resource = RESOURCE
    _track_activity = False  # to look at GPUs is no reason not to shut an idle server down

    def initialize(self, feed: Feed) -> None:
        """Take what the extension has for every request."""
        self._feed = feed

    @web.authenticated
    @authorized("read")  # type: ignore[untyped-decorator]  # its type is lost on the way
    async def get(self) -> None:
        """Answer the full message."""
        if self._feed.closed:
            raise web.HTTPError(503)
        self.set_header("Cache-Control", "no-store")
        await self.finish(await self._feed.full())


class StreamHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """WebSocket ``<base>/tfgpu-magic/stream?every=SECONDS``: the full message, and then what changes.

    A client may say ``{"processes": false}`` while it looks at no processes, but at memory alone: the driver is then
    asked for them more rarely. With ``true`` it says that it does again.
    """

    auth_resource = RESOURCE

    def initialize(self, feed: Feed, floor: float) -> None:
        """Take what the extension has for every request."""
        self._feed, self._floor = feed, floor
        self._client: Client | None = None
        self._every = floor

    def set_default_headers(self) -> None:
        """Set none: those for pages mean nothing here."""

    def get_compression_options(self) -> dict[str, Any] | None:
        """Compress as the server's other streams do."""
        options: dict[str, Any] | None = self.settings.get("websocket_compression_options")
        return options

    @property
    def max_message_size(self) -> int:
        """Bytes that a client may send at once."""
        return LARGEST_MESSAGE

    @ws_authenticated
    async def get(self) -> None:
        """Let in who may read."""
        allowed = await ensure_async(self.authorizer.is_authorized(self, self.current_user, "read", RESOURCE))
        if not allowed:
            raise web.HTTPError(403)
        if self._feed.closed:
            raise web.HTTPError(503)
        self._every = min(max(seconds(self.get_argument("every", "1")), self._floor), self._feed.longest)
        await super().get()

    def open(self) -> None:
        """Begin to send."""
        super().open()
        self._client = Client(self.write_message, lambda: self.close(1001, "the server stops"), every=self._every)
        self._feed.join(self._client)

    def on_message(self, message: str | bytes) -> None:
        """Hear what the client looks at; whatever else it says is ignored."""
        try:
            said: object = json.loads(message)
        except (ValueError, RecursionError):
            return
        processes = said.get("processes") if isinstance(said, dict) else None
        if self._client is not None and isinstance(processes, bool):
            self._feed.attend(self._client, processes=processes)

    def on_close(self) -> None:
        """Send no more."""
        if self._client is not None:
            self._feed.leave(self._client)


def seconds(text: str) -> float:
    """Read how often a client wants to hear.

    Raises:
        web.HTTPError: 400, it is no number of seconds.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise web.HTTPError(400, "every is not a number of seconds above 0")
    return value
