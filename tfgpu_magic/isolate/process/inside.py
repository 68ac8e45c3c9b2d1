"""Whether this process is a worker process: `worker` sets it, other code checks it."""

from __future__ import annotations

running = False
"""Whether this process is the worker process of an isolated call."""
