"""Finds, once a framework has begun, whether it has what was asked, and says what undid that; each thing once.

TensorFlow's settings are compared first. A limit that is taken at once may be less, or more, than its settings say: for
that the driver's figure counts, which is asked for once on each GPU, when TensorFlow has allocated there.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
from typing import Any

from tfgpu_magic.engine import other_processes
from tfgpu_magic.frameworks import import_hook
from tfgpu_magic.frameworks.runtime import RUNTIME, others_use_cuda
from tfgpu_magic.frameworks.tensorflow import devices
from tfgpu_magic.ground.message import RESTART
from tfgpu_magic.ground.process_kind import noun, process_kind
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.ground.units import MIB, rounded
from tfgpu_magic.machine.see import look
from tfgpu_magic.policy.fit import MOST_HOLDERS, Device
from tfgpu_magic.policy.memory import context_bytes, reserve_bytes
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.process_state import Stage

LEAST_CONTEXT = 96 * MIB
"""What CUDA holds beside a pool at the least: an idle context on a T4 is 105 MiB."""

_compared: set[str] = set()
"""The UUIDs of the GPUs on which the driver's figure was compared."""

_told: set[str] = set()

_begun: Plan | None = None
"""The plan under which TensorFlow has begun: its settings are fixed, and were compared."""

_waiting: list[tuple[Device, tuple[str, ...]]] = []
"""The GPUs on which TensorFlow takes its limit at once, and has not done so yet, with its names for them."""


def after_cell() -> None:
    """Set in the frameworks what could not be set before a cell's own code ran, and print what is not in force."""
    plan = RUNTIME.plan
    if plan is None or (plan is _begun and not _waiting and not plan.parts):
        return
    registry: Any = sys.modules.get("tfgpu_magic.frameworks.registry") if plan.parts else None
    if registry is not None:
        registry.after_cell()
    tell()


def tell(*, driver: bool = True) -> None:
    """Print which part of a policy is not in force, where the user sees it; nothing twice. It never fails.

    Args:
        driver: whether the driver may be asked, which takes a tenth of a second, and a second and a half if it hangs.
    """
    with contextlib.suppress(Exception):  # no cell or program is to end for it
        plan = RUNTIME.plan
        if plan is None:
            return
        if plan is not _begun:
            _compare_settings(plan)
        if _waiting and driver:
            _compare_memory()
        if plan.parts:
            _compare_others(plan)


def _compare_settings(plan: Plan) -> None:
    global _begun, _waiting
    stage = devices.current_stage()
    if stage not in (Stage.READY, Stage.POISONED):
        return
    undone = not RUNTIME.differs_by_driver and RUNTIME.changed_settings()
    if undone:
        _tell(", ".join(undone), _UNDONE, key=str(plan.asked))
    if stage is Stage.READY:
        at_once = () if undone or plan.growth else [one for one in plan.devices if one.limits]
        names = devices.logical_names()
        new = [(one, names[one.gpu.uuid]) for one in at_once if one.gpu.uuid in names.keys() - _compared]
        _begun, _waiting = plan, new


def _compare_memory() -> None:
    """Compare the driver's figures of the GPUs on which TensorFlow has taken its limit since the last time."""
    global _waiting
    if taken := [device for device, names in _waiting if devices.has_allocated(names)]:
        _waiting = [one for one in _waiting if one[0] not in taken]
        _compared.update(str(device.gpu.uuid) for device in taken)
        snapshot = look()
        for device in taken:
            _judge(device, snapshot)


def _compare_others(plan: Plan) -> None:
    registry: Any = sys.modules.get("tfgpu_magic.frameworks.registry")
    labels = {device.gpu.uuid: device.gpu.label for device in plan.devices}
    for name, limits in registry.changed_limits(plan.parts or ()).items() if registry else ():
        for uuid, size in limits.items():
            most = rounded(size) if size else "all"
            _tell(f"{name} may take {most} of GPU {labels.get(uuid, uuid)}", _UNDONE)


@functools.cache
def tell_at_exit() -> None:
    """Do so at the end of this process, if it is a program, without the driver: no end is to wait for it."""
    if process_kind() == "program":
        atexit.register(tell, driver=False)


_UNDONE = "leave out what has changed that"
_SHORT = "choose another GPU or a lower limit"


def _tell(why: str, remedy: str, *, key: str = "") -> None:
    if (key or why) not in _told:
        _told.add(key or why)
        most = f" The most that is allowed here is {RUNTIME.ceiling.named}." if RUNTIME.ceiling else ""
        not_so = f"{RUNTIME.policy_noun} is NOT in force: {why}.{most}"
        import_hook.warn(f"{import_hook.SPEAKER}: {not_so} To have it, {remedy}, and {_again()}.")


def _again() -> str:
    """Return what begins anew with the policy."""
    plan = RUNTIME.current
    if process_kind() != "kernel" or plan.configured:
        return f"start the {noun()} again"
    magic = "gpu" if plan.asked_of_all.asks_the_same(plan.asked) else "tf_gpu"
    return f"restart: `%{magic} {plan.asked} {RESTART}`"


def _judge(device: Device, snapshot: Snapshot) -> None:
    """Print if this process holds less of a GPU than its limit, or far more than that and CUDA's libraries.

    TensorFlow shrinks a limit for which less is free by a tenth, as often as it takes: then less than a tenth is left.
    """
    rows = [row for row in snapshot.processes if row.gpu == device.gpu.label]
    held = next((row.held for row in rows if row.pid == os.getpid()), None)
    gpu = next((gpu for gpu in snapshot.gpus if gpu.uuid == device.gpu.uuid), device.gpu)
    if held is None or gpu.free is None or gpu.total is None:
        return
    limit = sum(device.limits)
    counted = f"the driver counts {rounded(held)} of GPU {gpu.label} for this {noun()}, its CUDA context included"
    if held < limit or (held < limit + LEAST_CONTEXT and gpu.free < max(device.limits) // 10):
        why = f"TensorFlow took less than {rounded(limit)}, as less was free: {counted}"
        others = sorted((row for row in rows if row.pid != os.getpid() and row.held), key=lambda row: -(row.held or 0))
        names = other_processes.names(snapshot) if others else {}
        holders = [f"{names.get(row.pid, row.pid)} {rounded(row.held)}" for row in others[:MOST_HOLDERS]]
        _tell(f"{why}; others: {', '.join(holders)}" if holders else why, _SHORT)
    elif held > limit + context_bytes(gpu.total) + reserve_bytes(gpu.total, None) and not others_use_cuda():
        why = f"{counted}, more than a limit of {rounded(limit)} and CUDA's libraries"
        _tell(why, _SHORT)
    else:
        return
    RUNTIME.differs_by_driver[str(device.gpu.uuid)] = why
