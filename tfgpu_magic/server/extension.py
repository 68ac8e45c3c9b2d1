"""The application that Jupyter Server loads: its configuration, and the start and end of `feed`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Float, TraitError

from tfgpu_magic.policy.settings import REMOVED, removed
from tfgpu_magic.server.actions import EndHandler, StopHandler
from tfgpu_magic.server.extensions import extensions
from tfgpu_magic.server.feed import Feed
from tfgpu_magic.server.handlers import SnapshotHandler, StreamHandler
from tfgpu_magic.server.kernels import Kernels, Renames

if TYPE_CHECKING:
    from collections.abc import Callable


class _Seconds(Float):  # type: ignore[type-arg]  # not generic in all releases of traitlets
    """Seconds, of which the default counts where another cannot be used: an error would keep the extension out."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Return the value, or the default, which the log tells."""
        try:
            return super().validate(obj, value)
        except TraitError as error:
            setting = f"c.{type(obj).__name__}.{self.name}"
            obj.log.warning("%s = %r is NOT in force, and %r is. %s", setting, value, self.default_value, error)
            return self.default_value


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

    _ends: tuple[Callable[[], None], ...] = ()

    def initialize_handlers(self) -> None:
        """Make the feed, and register the handlers."""
        server = self.serverapp
        if server is None:
            raise AssertionError("an extension is loaded by a server")
        for name in REMOVED.keys() & self.config[type(self).__name__].keys():
            self.log.error("tfgpu_magic: %s", removed(name, f"c.{type(self).__name__}"))
        kernels = Kernels(server.kernel_manager, server.session_manager, server.event_logger)
        feed = Feed(kernels.notebooks, self.log, every=self.floor)
        self._ends = (feed.close, kernels.close, Renames(server.session_manager).close)
        self.handlers.extend([
            (r"/tfgpu-magic/snapshot", SnapshotHandler, {"feed": feed}),
            (r"/tfgpu-magic/stream", StreamHandler, {"feed": feed}),
            (r"/tfgpu-magic/stop", StopHandler, {"kernels": feed.notebooks}),
            (r"/tfgpu-magic/end", EndHandler, {"kernels": feed.notebooks, "kinds": feed.kinds}),
        ])  # fmt: skip
        for extension in extensions():
            more, end = extension.serve(kernels, server)
            self.handlers.extend(more)
            self._ends += (end,)

    async def stop_extension(self) -> None:
        """Close the streams and the board."""
        ends, self._ends = self._ends, ()
        for end in ends:
            end()
