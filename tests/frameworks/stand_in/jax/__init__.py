"""A stand-in for JAX: its backend takes a part of every GPU when it starts, as its variables say."""

from ._src import xla_bridge

__version__ = "0.10.2"


def devices() -> list[xla_bridge.Device]:
    """Start the backend."""
    return xla_bridge.backends()["cuda"].local_devices()
