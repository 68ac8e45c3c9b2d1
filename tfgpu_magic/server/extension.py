"""The application that Jupyter Server loads: its configuration, and the start and end of `feed` and `metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Float, TraitError

from tfgpu_magic.model.parts import parts
from tfgpu_magic.server.actions import EndHandler, StopHandler
from tfgpu_magic.server.feed import Feed
from tfgpu_magic.server.handlers import SnapshotHandler, StreamHandler
from tfgpu_magic.server.kernels import Kernels, Renames
from tfgpu_magic.server.metrics import start, stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_server.serverapp import ServerApp


class _SafeTrait:
    """A trait that takes its safe value where another cannot be used: an error would drop all settings beside it."""

    name: str | None
    safe: object

    def validate(self, obj: Any, value: Any) -> Any:
        """Return the value, or the safe one, which the log tells."""
        try:
            return super().validate(obj, value)  # type: ignore[misc]  # it stands before a trait
        except TraitError as error:
            setting = f"c.{type(obj).__name__}.{self.name}"
            obj.log.warning("%s = %r is NOT in force, and %r is. %s", setting, value, self.safe, error)
            return self.safe


class _Seconds(_SafeTrait, Float):  # type: ignore[type-arg]  # not generic in all releases of traitlets
    safe = 1.0


class _Switch(_SafeTrait, Bool):  # type: ignore[type-arg]  # as above
    safe = False


class TfGpuServer(ExtensionApp):
    """The GPUs' memory by owner, for every page of this server.

    Configured as any Jupyter Server extension: ``c.TfGpuServer.floor = 5`` in jupyter_server_config.py, or
    ``--TfGpuServer.floor=5``.
    """

    name = "tfgpu_magic"

    floor = _Seconds(
        1.0,
        min=1.0,
        max=60.0,
        help="Seconds between two messages of a stream, and between two readings of the GPUs for this server, at the "
        "least.",
    ).tag(config=True)
    metrics = _Switch(
        None,
        allow_none=True,
        help="Whether /metrics has the figures of the user's notebooks. If it is not said: where nobody reads /metrics "
        "without being logged in, and no Authorizer of one's own, which /metrics never asks, decides who sees what.",
    ).tag(config=True)

    _ends: tuple[Callable[[], None], ...] = ()

    def initialize_handlers(self) -> None:
        """Make the feed and the metrics, and register the handlers."""
        server = self.serverapp
        if server is None:
            raise AssertionError("an extension is loaded by a server")
        kernels = Kernels(server.kernel_manager, server.session_manager, server.event_logger)
        feed = Feed(kernels.notebooks, self.log, every=self.floor)
        self._ends = (feed.close, kernels.close, Renames(server.session_manager).close)
        if _open_to_all(server) if self.metrics is None else self.metrics:
            start()
            self._ends += (stop,)
        self.handlers.extend([
            (r"/tfgpu-magic/snapshot", SnapshotHandler, {"feed": feed}),
            (r"/tfgpu-magic/stream", StreamHandler, {"feed": feed}),
            (r"/tfgpu-magic/stop", StopHandler, {"kernels": feed.notebooks}),
            (r"/tfgpu-magic/end", EndHandler, {"kernels": feed.notebooks, "kinds": feed.kinds}),
        ])  # fmt: skip
        for begin in parts("server task"):
            more, end = begin(kernels, server)
            self.handlers.extend(more)
            self._ends += (end,)

    async def stop_extension(self) -> None:
        """Close the streams and the board, and remove the figures from /metrics."""
        ends, self._ends = self._ends, ()
        for end in ends:
            end()


def _open_to_all(server: ServerApp) -> bool:
    """Tell whether all readers of /metrics may see the GPUs: it requires a login at most."""
    known = type(server.authorizer).__module__.startswith(("jupyter_server.", "jupyterhub."))
    return known and getattr(server, "authenticate_prometheus", True)
