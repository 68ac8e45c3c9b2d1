"""The protocol between a kernel and its fork server: plain bytes over a socket, and over one pipe for each call."""

from __future__ import annotations

import struct

FIGURE = struct.Struct("=q")
"""The format of a pid and of an exit status: a status as in `subprocess`, negative for a signal."""

ORDER = struct.Struct("=qq")
"""The format of an order: a pid and a signal for its process group. With pid 0 it starts a call and carries these
descriptors: the pipe that its pid and its exit status are written to, its connection, its output, its error output,
and the pipe that `faulthandler` writes to."""

READY = b"ready"
"""What a fork server sends when everything is imported, followed by how many milliseconds that took."""
