"""Tries ways out with the planner, on the GPUs as they were seen: nothing is applied, and no framework is asked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tfgpu_magic.engine import control
from tfgpu_magic.isolate import leases
from tfgpu_magic.model.report import TENSORFLOW
from tfgpu_magic.policy import fit, parser
from tfgpu_magic.policy.memory import context_bytes, reserve_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgpu_magic.model.rows import ProcessRow
    from tfgpu_magic.model.snapshot import Snapshot
    from tfgpu_magic.policy.fit import Device
    from tfgpu_magic.policy.plan import Plan


class Planned:
    """A `ways.Trial`.

    Args:
        snapshot: the GPUs.
        framework: the name of the framework that had no memory.
        gpu: the UUID of the GPU that had none; None where that is not known.
    """

    def __init__(self, snapshot: Snapshot, framework: str, gpu: str | None) -> None:
        self._snapshot, self._framework, self._gpu = snapshot, framework, gpu

    def anew(self, words: str, need: int, *, without: ProcessRow | None = None) -> bool:
        """Tell whether a new process would have so much in one pool with these words."""
        snapshot = self._snapshot if without is None else _emptied(self._snapshot, without)
        return self._has_room(lambda: control.foresee(words, self._asked, see=lambda: snapshot), need)

    def beside(self, words: str, need: int) -> bool:
        """Tell whether an isolated cell would have so much in one pool with these words, beside this process.

        It sees every GPU that this process sees, and uses the one that this process used.
        """
        try:
            policy = parser.parse(words)
            tried = (
                partial(leases.candidates, here, policy, self._snapshot)
                for here in leases.nearest_first(self._snapshot)
            )
            devices = leases.first(tried)
        except Exception:  # as below
            return False
        here = [device for device in devices if device.gpu.uuid == self._gpu] or list(devices[:1])
        grows = any(request.grows for request in policy.memory)
        return (
            bool(here)
            and not fit.problems(here)
            and not fit.crowding(here, grows=grows)
            and self._room(here[0]) >= need
        )

    @property
    def _asked(self) -> control.Frameworks:
        return "tensorflow" if self._framework == TENSORFLOW else "all"

    def _has_room(self, make: Callable[[], Plan], need: int) -> bool:
        try:
            plan = make()
        except Exception:  # refused; or whatever else: what cannot be tried is not advised
            return False
        if fit.problems(plan.devices) or fit.crowding(plan.devices, grows=plan.grows):
            return False
        used = [device for device in plan.devices if device.gpu.uuid == self._gpu] or list(plan.devices)
        limits = {part.framework: part.limits for part in plan.others.parts}.get(self._framework, {})
        return any(limits.get(str(device.gpu.uuid), self._room(device)) >= need for device in used)

    def _room(self, device: Device) -> int:
        """Return the bytes that the largest pool on a GPU could have."""
        gpu = device.gpu
        if device.limits:
            return max(device.limits)
        if gpu.free is None or gpu.total is None:
            return 0
        room = gpu.free - context_bytes(gpu.total)
        return max(0, room - (reserve_bytes(room, gpu.capability) if self._framework == TENSORFLOW else 0))


def _emptied(snapshot: Snapshot, row: ProcessRow) -> Snapshot:
    """Return the snapshot as it would be without a process."""
    rows = [process for process in snapshot.processes if process.pid == row.pid]
    held = {process.gpu: process.held or 0 for process in rows}
    gpus = tuple(
        gpu if gpu.free is None else replace(gpu, free=gpu.free + held.get(gpu.label, 0)) for gpu in snapshot.gpus
    )
    return replace(snapshot, gpus=gpus, processes=tuple(one for one in snapshot.processes if one not in rows))
