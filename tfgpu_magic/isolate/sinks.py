"""Sinks for the output of calls: this process's own streams and display, or the cell that began a call."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import sys
from collections.abc import Mapping
from typing import Any

from tfgpu_magic.ground.process_kind import shell


class Sink:
    """Where output goes: this process's own streams, and the display of the thread's cell.

    A stream that is closed, whose terminal has gone, or that is no whole file, ends no call: what it refuses is lost.
    """

    def write(self, stream: str, text: str) -> None:
        """Write to ``stdout`` or ``stderr`` as `print` does, and flush; the stream may have another encoding."""
        file = getattr(sys, stream)
        if file is None:  # as in a service
            return
        with contextlib.suppress(Exception):
            try:
                file.write(text)
            except UnicodeEncodeError as error:
                file.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
            file.flush()

    def show(self, message: Mapping[str, Any]) -> None:
        """Publish it as a cell of this process would; without IPython, print its text.

        Args:
            message: ``data`` and ``metadata`` by MIME type, ``transient``, ``update``; or ``clear``, and nothing else.
        """
        here = shell()
        if here is None:
            self.write("stdout", str(message.get("data", {}).get("text/plain", "")) + "\n")
            return
        with contextlib.suppress(Exception):
            if "clear" in message:
                here.display_pub.clear_output(wait=message["clear"])
            else:
                here.display_pub.publish(**message)


class SubmittingCell(Sink):
    """A sink for the cell that is running now in a kernel: its own streams until the kernel runs another cell.

    So code that captures a cell's output captures that of its calls too; and later output does not go to the next cell.
    Source: Jupyter's messaging protocol: an output belongs to the cell of the request that is its parent.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel, self._parent = kernel, copy.deepcopy(kernel.get_parent())
        self._request = self._running()

    def write(self, stream: str, text: str) -> None:
        """Write to the cell's stream."""
        if self._running() == self._request:
            super().write(stream, text)
        else:
            self._send("stream", {"name": stream, "text": text})

    def show(self, message: Mapping[str, Any]) -> None:
        """Show it below the cell's other output."""
        if self._running() == self._request:
            super().show(message)
        elif "clear" in message:
            self._send("clear_output", {"wait": message["clear"]})
        else:
            content = {part: message.get(part) or {} for part in ("data", "metadata", "transient")}
            self._send("update_display_data" if message.get("update") else "display_data", content)

    def _send(self, kind: str, content: dict[str, Any]) -> None:
        socket, ident = self._kernel.iopub_socket, kind.encode()
        with contextlib.suppress(Exception):  # half of a surrogate pair has no UTF-8
            self._kernel.session.send(socket, kind, content, parent=self._parent, ident=ident)

    def _running(self) -> object:
        # In a context of its own: a thread that the cell has started would get the cell's request for ever.
        parent = contextvars.Context().run(self._kernel.get_parent)
        return parent.get("header", {}).get("msg_id")


def of_running_cell() -> Sink:
    """Return the sink for a call that is submitted here: that of the running cell, if this process runs cells."""
    kernel = getattr(shell(), "kernel", None)
    return Sink() if kernel is None else SubmittingCell(kernel)
