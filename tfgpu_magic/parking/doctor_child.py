"""In a process of its own: TensorFlow fills some memory of a GPU, is parked, comes back, and sees whether all is there.

Then it ends at once. Under the open kernel module it is parked again first: there, the end of a process whose state was
brought back, and is not away, has stopped whole machines. `child.ask` kills it if its time is over, and when the doctor
is interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import traceback
from typing import TYPE_CHECKING, Any

from tfgpu_magic.leases.lease_file import TABLE
from tfgpu_magic.monitor.driver.look import LOOK_TIMEOUT, look
from tfgpu_magic.parking import facts, refusals
from tfgpu_magic.parking.gpu_state import Asker, GpuState
from tfgpu_magic.parking.inside.introspection import keep_nvml, of_process
from tfgpu_magic.parking.transfers import Park, Unpark
from tfgpu_magic.units import MIB

__all__ = ["keep_nvml", "main"]

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.parking.messages import ParkOutcome

CHUNK = 64 * MIB
"""The bytes of one tensor."""
ROOM_TIMEOUT = 20.0
"""Seconds that it waits for room: others may have taken that."""


def main(tensorflow: Any, size: int, *, allow_open_module: bool) -> None:
    """Park this process, and print what came of it.

    That is the `step` that it has come to, and `refusals` of it; the `size` that it held, what the driver said that it
    `held` meanwhile, the seconds `out` and `back`, whether all is the `same`.

    Args:
        tensorflow: the module.
        size: bytes of tensors.
        allow_open_module: whether to try it on the open kernel module.
    """
    state = GpuState(os.getpid())
    status = 1
    try:
        print(json.dumps(_answer(state, tensorflow, size, allow_open_module=allow_open_module)), flush=True)
        status = 0
    except Exception:
        traceback.print_exc()
    if state.known is not None and facts.open_module() is not False:
        Park(state, None).park()
    os._exit(status)


def _answer(state: GpuState, tensorflow: Any, size: int, *, allow_open_module: bool) -> dict[str, Any]:
    kept = [_on_gpu(tensorflow, os.urandom(CHUNK)) for _ in range(size // CHUNK)]
    before = _digests(kept)
    gone = Park(state, of_process(), allow_open_module=allow_open_module).park()
    if not gone.done or gone.entry is None:
        return {"step": "park", "refusals": _refusals(gone)}
    answer = {
        "size": gone.entry.size,
        "out": gone.seconds,
        "held": sum(look(LOOK_TIMEOUT).held_by(os.getpid()).values()),
    }
    end = time.monotonic() + ROOM_TIMEOUT
    back = Unpark(state, TABLE, asker=Asker(wanted=lambda: time.monotonic() < end)).unpark()
    if not back.done:
        return answer | {"step": "unpark", "refusals": _refusals(back)}
    return answer | {"step": "compare", "refusals": [], "back": back.seconds, "same": _digests(kept) == before}


def _on_gpu(tensorflow: Any, content: bytes) -> Any:
    """Return a tensor on the GPU that has this content."""
    with tensorflow.device("CPU:0"):
        here = tensorflow.io.decode_raw(content, tensorflow.uint8)
    with tensorflow.device("GPU:0"):
        return tensorflow.identity(here)


def _digests(tensors: Iterable[Any]) -> list[bytes]:
    """Return a checksum of what each tensor holds."""
    return [hashlib.sha256(tensor.numpy()).digest() for tensor in tensors]


def _refusals(outcome: ParkOutcome) -> list[dict[str, Any]]:
    return [refusals.to_json(refusal) for refusal in outcome.refusals]
