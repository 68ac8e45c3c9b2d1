"""In a process of its own: what the driver says of its GPUs, as `doctor.driver` reads it."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfgpu_magic.monitor.nvml import Reader


def main(reader: Reader) -> None:
    """Print what one reading of NVML gives, and exit at once."""
    begun = time.monotonic()
    snapshot = reader.read()
    answer = {"snapshot": snapshot.to_json(), "persistence": reader.persistence(), "took": time.monotonic() - begun}
    print(json.dumps(answer), flush=True)
    os._exit(0)
