"""A folder for what a script makes and throws away."""

from __future__ import annotations

import tempfile


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Make a folder that goes with its block: a collector that outlives the block may still write there."""
    return tempfile.TemporaryDirectory(prefix="tfgpu_magic-", ignore_cleanup_errors=True)
