"""Whether this process is that of an isolated call: `worker` says so, and who would start another asks."""

from __future__ import annotations

running = False
"""Whether it is."""
