"""Whether this process is that of an isolated call: `infant` says so, and who would start another asks."""

from __future__ import annotations

running = False
"""Whether it is."""
