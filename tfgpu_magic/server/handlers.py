"""Serves the snapshot over REST and the stream to users whom Jupyter Server authorises; the data is `feed`'s."""

from __future__ import annotations

import json
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
except ImportError:  # before 2.13, which JupyterLab 4.0 does not require

    def ws_authenticated(method: FuncT) -> FuncT:
        """Require a logged-in user, and redirect to no page."""

        @wraps(method)
        def checked(self: StreamHandler) -> Any:
            if self.current_user is None:
                raise web.HTTPError(403)
            return method(self)

        return cast("FuncT", checked)


if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgpu_magic.server.feed import Feed

RESOURCE = "tfgpu_magic"
"""The resource that an Authorizer decides about; the action is ``read``."""
LARGEST_MESSAGE = 1024
"""The largest message from a client, in bytes; a client that sends more is disconnected."""


class SnapshotHandler(APIHandler):
    """``GET <base>/tfgpu-magic/snapshot``: the full message, with which a stream begins."""

    auth_resource = RESOURCE
    _track_activity = False  # looking at GPUs must not keep an idle server up

    def initialize(self, feed: Feed) -> None:
        """Take what the extension has for every request."""
        self._feed = feed

    @web.authenticated
    @authorized("read")  # type: ignore[untyped-decorator]  # its type is lost on the way
    async def get(self) -> None:
        """Send the full message."""
        if self._feed.closed:
            raise web.HTTPError(503)
        self.set_header("Cache-Control", "no-store")
        await self.finish(await self._feed.full())


class StreamHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """WebSocket ``<base>/tfgpu-magic/stream``: the full message, and then what changes.

    A client may send ``{"processes": false}`` while it shows no processes, but memory alone: they are then read more
    rarely. ``true`` ends that.
    """

    auth_resource = RESOURCE

    def initialize(self, feed: Feed) -> None:
        """Take what the extension has for every request."""
        self._feed = feed
        self._client: Client | None = None

    def set_default_headers(self) -> None:
        """Set no headers: those for pages mean nothing here."""

    def get_compression_options(self) -> dict[str, Any] | None:
        """Compress as the server's other streams do."""
        options: dict[str, Any] | None = self.settings.get("websocket_compression_options")
        return options

    @property
    def max_message_size(self) -> int:
        """The largest message from a client, in bytes."""
        return LARGEST_MESSAGE

    @ws_authenticated
    async def get(self) -> None:
        """Accept the connection of a user who may read."""
        allowed = await ensure_async(self.authorizer.is_authorized(self, self.current_user, "read", RESOURCE))
        if not allowed:
            raise web.HTTPError(403)
        if self._feed.closed:
            raise web.HTTPError(503)
        await super().get()

    def open(self) -> None:
        """Begin to send."""
        super().open()
        self._client = Client(self.write_message, lambda: self.close(1001, "the server stops"))
        self._feed.join(self._client)

    def on_message(self, message: str | bytes) -> None:
        """Read what the client shows; ignore any other message."""
        try:
            content: object = json.loads(message)
        except (ValueError, RecursionError):
            return
        processes = content.get("processes") if isinstance(content, dict) else None
        if self._client is not None and isinstance(processes, bool):
            self._feed.show_processes(self._client, processes=processes)

    def on_close(self) -> None:
        """Send no more."""
        if self._client is not None:
            self._feed.leave(self._client)
