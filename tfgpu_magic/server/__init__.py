"""The Jupyter Server extension: the board over REST, and one WebSocket stream."""

from __future__ import annotations

from typing import Any

from tfgpu_magic._version import __version__ as __version__


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Return the extension to Jupyter Server, which alone imports it."""
    from tfgpu_magic.server.extension import TfGpuServer

    return [{"module": "tfgpu_magic.server", "app": TfGpuServer}]
