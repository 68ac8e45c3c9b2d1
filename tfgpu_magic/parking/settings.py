"""What the helper and those who start it share: its names on the board, its lifetime and its timeouts."""

from __future__ import annotations

SOCKET = "parker-2"
"""The helper's socket, with the version of `messages`."""
LOCK = "lock-parker-1"
"""The file whose lock makes one helper the only one."""
WORKERS_LOCK = "lock-parker-workers-1"
"""The file whose lock every worker of a helper keeps, also when the helper has died."""

LINGER = 60.0
"""Seconds that the helper stays when nothing is parked and nobody has asked for anything."""
HEARTBEAT = 1.0
"""Seconds between two lines to whoever waits, at the most."""
SILENCE = 30.0
"""Seconds without a line after which the helper hangs."""
START_TIMEOUT = 60.0
"""Seconds in which a helper that was started listens."""
