"""The displays of a cell's process: each is sent home at its place among the text, and the last value is kept."""

from __future__ import annotations

import numbers
import os
import pickle
import socket
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher

from tfgpu_magic.isolate.process import wire
from tfgpu_magic.isolate.process.order import SHOW

WIDGET = "application/vnd.jupyter.widget-view+json"
"""A widget lives in a process's comms, which this one has not; its text is shown instead."""


class Publisher(DisplayPublisher):  # type: ignore[misc,unused-ignore]  # IPython's
    """Sends displays home, each at its place among the text."""

    home: Home

    def publish(
        self,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        source: object = None,
        *,
        transient: Mapping[str, Any] | None = None,
        update: bool = False,
        **_: object,
    ) -> None:
        """Show a display, as `IPython.display.publish_display_data` has it."""
        del source
        bundle = {mime: part for mime, part in data.items() if mime != WIDGET}
        message = {"data": bundle, "metadata": metadata or {}, "transient": transient or {}, "update": update}
        self.home.show(as_json(message))

    def clear_output(self, wait: bool = False) -> None:
        """Clear what the cell has shown."""
        self.home.show({"clear": wait})


class Hook(DisplayHook):  # type: ignore[misc,unused-ignore]  # IPython's
    """Keeps the last value; those before it are shown."""

    value: Any = None
    shell: Any

    def __call__(self, result: Any = None) -> None:
        """Take a value that a cell displays."""
        if self.value is not None:
            self.shell.display_pub.publish(*self.shell.display_formatter.format(self.value))
        self.value = result


class Home:
    """The way home for displays. One at a time: a thread that shows waits until it is shown."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._shown = 0
        self._here = os.getpid()

    def show(self, message: Mapping[str, Any]) -> None:
        """Show it, after all that was printed before and before all that is printed next."""
        sys.stdout.flush()
        sys.stderr.flush()
        if os.getpid() != self._here:  # a fork of the cell's process: what is answered there is not for it
            wire.send(self._connection, SHOW, [memoryview(pickle.dumps(message))])
            return
        with self._lock:
            self._shown += 1
            number = str(self._shown).encode()
            wire.send(self._connection, SHOW, [memoryview(pickle.dumps(message)), number])
            # One that was interrupted here has left behind what it waited for.
            while (said := wire.receive(self._connection)) is not None and bytes(said.parts[0]) != number:
                pass


def as_json(part: Any) -> Any:
    """A display's data as its message will have it: whatever else is in it might not be made again at home."""
    if part is None or type(part) in (str, bytes, bool, int, float):
        return part
    if isinstance(part, Mapping):
        return {str(key): as_json(inside) for key, inside in part.items()}
    if isinstance(part, bytes | bytearray | memoryview):
        return bytes(part)
    if isinstance(part, Iterable) and not isinstance(part, str):
        return [as_json(inside) for inside in part]
    if isinstance(part, numbers.Integral):
        return int(part)
    return float(part) if isinstance(part, numbers.Real) else str(part)
