"""In a process of its own: what NVML says of the GPUs; whether CUDA starts, and by which pid NVML lists its context."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from tfgpu_magic.frameworks import cuda
from tfgpu_magic.monitor.driver import nvml_calls
from tfgpu_magic.units import BINARY

if TYPE_CHECKING:
    from tfgpu_magic.model.snapshot import Snapshot
    from tfgpu_magic.monitor.driver.nvml import NvmlReader

ROOM = 2 * BINARY["GiB"]
"""The bytes that must be free on a GPU before a context is made there: the others' programs come first."""


def read(reader: NvmlReader) -> None:
    """Print what one reading of NVML gives, and exit at once."""
    begun = time.monotonic()
    snapshot = reader.read()
    answer = {"snapshot": snapshot.to_json(), "took": time.monotonic() - begun, "library": nvml_calls.opened()}
    print(json.dumps(answer), flush=True)
    os._exit(0)


def start(reader: NvmlReader) -> None:
    """Print what came of starting CUDA, and exit at once."""
    print(json.dumps(_answer(reader)), flush=True)
    os._exit(0)


def _answer(reader: NvmlReader) -> dict[str, Any]:
    try:
        code = cuda.start()
    except OSError as error:
        return {"library": str(error)}
    answer: dict[str, Any] = {"version": cuda.version(), "code": code, "name": cuda.name(code), "shown": cuda.shown()}
    before = reader.read(graphics=False)
    free = {gpu.uuid: gpu.free or 0 for gpu in before.gpus}
    shown = answer["shown"]
    ordinal = max(range(len(shown)), key=lambda n: free.get(shown[n], 0), default=None)
    if code or ordinal is None or free.get(shown[ordinal], 0) < ROOM:
        return answer
    made = cuda.make_context(ordinal)
    answer["context"] = {"gpu": shown[ordinal], "code": made, "name": cuda.name(made)}
    after = reader.read(graphics=False)
    took = _used(after, shown[ordinal], _used(before, shown[ordinal], 0))
    return answer | {"listed": _listed(before, after), "took": took}


def _listed(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """Return whether NVML lists this process by its own pid, what it holds then, and how many others are new."""
    own = [row for row in after.processes if row.pid == os.getpid()]
    known = {(row.gpu, row.pid) for row in before.processes}
    new = [row for row in after.processes if (row.gpu, row.pid) not in known]
    return {"own": bool(own), "held": own[0].held if own else None, "others": len(new) - len(own)}


def _used(snapshot: Snapshot, uuid: str, less: int | None) -> int | None:
    """Return the bytes that are used of a GPU beyond so many; None where that is unknown."""
    used = next((gpu.used for gpu in snapshot.gpus if gpu.uuid == uuid), None)
    return None if used is None or less is None else max(0, used - less)
