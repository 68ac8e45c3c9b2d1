"""How much longer than promised things may take on this machine before a test calls a promise broken."""

from __future__ import annotations

import os

SLACK = float(os.environ.get("TFGPU_TEST_SLACK", "1"))
"""Seconds for a second: more than 1 where tests run beside others, as `scripts/test` runs them."""
