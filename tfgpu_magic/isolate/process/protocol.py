"""What a kernel and its nursery say to each other: plain bytes over a socket, and over a pipe of each call's own."""

from __future__ import annotations

import struct

FIGURE = struct.Struct("=q")
"""How a pid and an exit status are written: a status as `subprocess` has it, negative for a signal."""

ORDER = struct.Struct("=qq")
"""An order: a pid and a signal for its process group; pid 0 is a call to start, with these descriptors: the pipe that
its pid and its exit status go to, its connection, its output and its error output."""

READY = b"ready"
"""What a nursery says when everything is imported, and after it how many milliseconds that took."""
