"""The displays of a cell's process: each is sent to the kernel in order with the text; the last value is kept."""

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

from tfgpu_magic.isolate.process import interrupt, wire
from tfgpu_magic.isolate.process.order import AGAIN, SHOW, SHOWN

WIDGET = "application/vnd.jupyter.widget-view+json"
"""The MIME type of widgets, which need comms: this process has none, and the widget's text is shown instead."""


class Publisher(DisplayPublisher):  # type: ignore[misc,unused-ignore]  # IPython's
    """A publisher that sends displays to the kernel, each in order with the text."""

    channel: DisplayChannel

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
        """Show a display, with the arguments of `IPython.display.publish_display_data`."""
        del source
        bundle = {mime: part for mime, part in data.items() if mime != WIDGET}
        message = {"data": bundle, "metadata": metadata or {}, "transient": transient or {}, "update": update}
        self.channel.show(as_json(message))

    def clear_output(self, wait: bool = False) -> None:
        """Clear what the cell has shown."""
        self.channel.show({"clear": wait})


class Hook(DisplayHook):  # type: ignore[misc,unused-ignore]  # IPython's
    """A display hook that keeps the last value, and shows those before it."""

    value: Any = None
    shell: Any

    def __call__(self, result: Any = None) -> None:
        """Keep a value that the cell displays, and show the one before."""
        if self.value is not None:
            self.shell.display_pub.publish(*shown(self.shell.display_formatter, self.value))
        self.value = result


class DisplayChannel:
    """The channel for displays to the kernel. A thread that shows a display waits until the kernel has shown it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._shown = 0
        self._asking = threading.Lock()  # held by the thread that waits until its display is shown
        self._pid, self._closed = os.getpid(), False

    def show(self, message: Mapping[str, Any]) -> None:
        """Show it, after all that was printed before and before all that is printed next."""
        sys.stdout.flush()
        sys.stderr.flush()
        if os.getpid() != self._pid:  # a fork of the cell's process: the kernel's replies are not for it
            wire.send(self._connection, SHOW, [memoryview(pickle.dumps(message))])
            return
        with self._asking, interrupt.put_off():  # what is printed after an interrupt is shown after this, too
            self._shown += 1
            number = str(self._shown).encode()
            parts = [pickle.dumps(message)] if self._closed else [pickle.dumps(message), number]
            wire.send(self._connection, SHOW, parts)
            # A call of this method that was left by an exception has left a reply unread.
            while not self._closed and (reply := wire.receive(self._connection)) is not None:
                if reply.kind == AGAIN:
                    wire.send(self._connection, SHOW, parts)
                if reply.kind == SHOWN and bytes(reply.parts[0]) == number:
                    return

    def close(self) -> None:
        """Wait for no display from now on: what arrives is for the thread that ends the call."""
        with self._asking:
            self._closed = True


def shown(formatter: Any, value: object) -> tuple[Any, Any]:
    """Return how a value is displayed, data and metadata; if that fails, its plain name."""
    try:
        data, metadata = formatter.format(value)
        return as_json(data), as_json(metadata)
    except Exception:  # of the value's own, such as a RecursionError: the cell has run, and its names are to come
        return {"text/plain": object.__repr__(value)}, {}


def as_json(part: Any) -> Any:
    """Return a display's data as plain JSON: an object of another class might not be unpickled in the kernel."""
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
