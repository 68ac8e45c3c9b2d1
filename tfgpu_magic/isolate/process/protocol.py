"""The protocol between a kernel and its fork server: plain bytes over a socket, and over one pipe for each call."""

from __future__ import annotations

import struct

FIGURE = struct.Struct("=q")
"""How a pid and an exit status are written: a status as `subprocess` has it, negative for a signal."""

ORDER = struct.Struct("=qq")
"""An order: a pid and a signal for its process group; pid 0 is a call to start, with these descriptors: the pipe that
its pid and its exit status go to, its connection, its output and its error output."""

READY = b"ready"
"""What a fork server says when everything is imported, and after it how many milliseconds that took."""
