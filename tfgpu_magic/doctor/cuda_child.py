"""In a process of its own: whether CUDA starts, what a context takes, and whether NVML names its process."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from tfgpu_magic.frameworks import cuda
from tfgpu_magic.ground.units import BINARY
from tfgpu_magic.machine.driver.nvml import NvmlReader

if TYPE_CHECKING:
    from tfgpu_magic.ground.snapshot import Snapshot

ROOM = 2 * BINARY["GiB"]
"""The bytes that must be free on a GPU before a context is made there: the others' programs come first."""


def main() -> None:
    """Print what came of starting CUDA, and exit at once."""
    print(json.dumps(_answer()), flush=True)
    os._exit(0)


def _answer() -> dict[str, Any]:
    try:
        code = cuda.start()
    except OSError as error:
        return {"library": str(error)}
    shown = cuda.visible_gpus()
    answer: dict[str, Any] = {"version": cuda.version(), "code": code, "name": cuda.error_name(code), "shown": shown}
    reader = NvmlReader()
    before = reader.read(graphics=False)
    free = {gpu.uuid: gpu.free or 0 for gpu in before.gpus}
    ordinal = max(range(len(shown)), key=lambda n: free.get(shown[n], 0), default=None)
    if code or ordinal is None or free.get(shown[ordinal], 0) < ROOM:
        return answer
    made = cuda.make_context(ordinal)
    answer["context"] = {"gpu": shown[ordinal], "code": made, "name": cuda.error_name(made)}
    after = reader.read(graphics=False)
    own = [row for row in after.processes if row.pid == os.getpid()]
    took = _used(after, shown[ordinal], _used(before, shown[ordinal], 0))
    return answer | {"listed": {"own": bool(own), "held": own[0].held if own else None}, "took": took}


def _used(snapshot: Snapshot, uuid: str, less: int | None) -> int | None:
    """Return the bytes that are used of a GPU beyond so many; None where that is unknown."""
    used = next((gpu.used for gpu in snapshot.gpus if gpu.uuid == uuid), None)
    return None if used is None or less is None else max(0, used - less)
