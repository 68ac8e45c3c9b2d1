"""This process's TensorFlow: THE ONLY room that touches `tf.config` and TensorFlow's environment variables.

It never imports TensorFlow and never wakes it: it works with the TensorFlow that the user has imported, or waits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tfgpu_magic.config import cuda, keras, visible
from tfgpu_magic.config.plan import Plan
from tfgpu_magic.config.policy import NOTHING
from tfgpu_magic.config.process_state import ALLOCATOR, DEVICES, GROWTH, VARIABLES, ProcessState, Stage
from tfgpu_magic.config.runtime import devices
from tfgpu_magic.config.runtime.devices import Settings
from tfgpu_magic.config.runtime.environ import EnvironmentChanges, adopt, environment
from tfgpu_magic.config.runtime.stage import current_stage, forked, frozen, importing, listed, tensorflow, too_old
from tfgpu_magic.errors import Refused
from tfgpu_magic.host import host
from tfgpu_magic.monitor.snapshot import Gpu
from tfgpu_magic.units import MIB, rounded

__all__ = ["RUNTIME", "Runtime", "adopt", "current_stage", "environment", "frozen", "tensorflow"]

NEIGHBOURS = ("torch", "jax", "cupy", "numba.cuda", "pycuda")
"""Libraries that may hold a CUDA context of their own in a kernel."""


class Runtime:
    """What was done to this process so far, and the way back. There is one, `RUNTIME`.

    Attributes:
        plan: the plan in force or waiting for TensorFlow; None while nothing was asked.
        since: which cell made it too late, in words, if somebody watches the cells.
        broken: TensorFlow failed to make its context for want of memory.
    """

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.since: str | None = None
        self.broken = False
        self._ledger = EnvironmentChanges()
        self._theirs: Settings | None = None  # TensorFlow's settings before we first changed any
        self._answers: dict[tuple[object, ...], tuple[str, ...]] = {}  # CUDA's order does not change while we live

    def observe(self, gpus: Sequence[Gpu], *, patience: float = cuda.PATIENCE) -> ProcessState:
        """How this process stands now, on a machine with these GPUs. Changes nothing and wakes nothing.

        Args:
            gpus: the machine's GPUs.
            patience: seconds that CUDA may take to tell its order of GPUs, where only it can.
        """
        stage, fixed = current_stage(), frozen()
        outside = self._ledger.outside()
        environment = {name: os.environ[name] for name in VARIABLES if name in os.environ}
        shown = cuda.shown() if fixed else self._predict(gpus, outside, patience)
        ours = environment.get(DEVICES) != outside.get(DEVICES)
        sees, theirs = self._listed()
        return ProcessState(
            stage=stage,
            environment=environment,
            outside=outside,
            frozen=fixed,
            shown=shown,
            given=self._predict(gpus, outside, patience) if fixed and ours else shown,
            tensorflow_sees=sees,
            skipped=tuple(uuid for uuid in shown or () if uuid not in theirs.growth) if listed() else (),
            growth=theirs.growth,
            limits={uuid: _bytes(parts) for uuid, parts in theirs.parts.items() if parts and uuid != devices.CPU},
            neighbour=_neighbour() if cuda.has_context() and stage is not Stage.READY else None,
            forked=forked(),
            asked=self.plan.asked if self.plan else NOTHING,
            settled=self.plan.settled if self.plan else NOTHING,
            changed=self._changed(),
            since=self.since,
            broken=self.broken and stage is not Stage.READY,
            old=too_old(),
            host=host(),
            keras=keras.other_backend(),
        )

    def apply(self, plan: Plan) -> None:
        """Do what the plan says, whole or not at all.

        Where TensorFlow must be told and is not imported yet, the rest waits: call `tell` once it is.

        Raises:
            Refused: TensorFlow did not take it; everything is as it was.
        """
        if plan.judged and plan.needs_tensorflow and importing():
            raise Refused("Not applied. TensorFlow is being imported at this moment; say it again when that is done.")
        with self._ledger.undone_on_error():
            self._ledger.write(plan.environment)
            if tensorflow() is not None:
                self.tell(plan)
        self.plan = plan

    def tell(self, plan: Plan) -> None:
        """Tell the imported TensorFlow what only its own API can set, whole or not at all.

        Raises:
            Refused: TensorFlow did not take it; its settings are as they were.
        """
        # Where TensorFlow has made no list yet, nothing was set that would have to be taken back.
        if not (plan.needs_tensorflow or listed()):
            return
        try:
            before = devices.read()
            theirs = self._theirs or before
            wanted = _settings(plan, theirs)
            try:
                devices.write(wanted)
            except BaseException:
                devices.write(before)
                raise
            self._theirs = theirs
        except Refused:
            raise
        except Exception as error:  # TensorFlow's errors have no common root
            raise Refused(f"Not applied. TensorFlow did not take it: {error}") from error

    def environment_for_children(self) -> dict[str, str]:
        """The environment that a new process is to have of this one: without what we changed."""
        theirs = {name: value for name, value in environment().items() if name not in VARIABLES}
        return theirs | self._ledger.outside()

    def fall(self, plan: Plan) -> None:
        """Have only a plan's variables in force, where TensorFlow cannot be told what was asked."""
        self._ledger.write(plan.environment)
        self.plan = plan

    def _listed(self) -> tuple[tuple[str, ...] | None, Settings]:
        """The GPUs that TensorFlow sees, and its settings without us; nothing while it has made no list."""
        if not listed() or tensorflow() is None or forked():
            return None, Settings(parts={}, growth={}, visible=())
        now = devices.read()
        return now.visible, self._theirs or now

    def _changed(self) -> tuple[str, ...]:
        """What is other than the plan that is in force says, a phrase each."""
        plan = self.plan
        if plan is None or forked():
            return ()
        now = {name: os.environ.get(name) for name in plan.environment}
        found = [f"{name} is {now[name]!r}" for name, value in plan.environment.items() if now[name] != value]
        if plan.limited and os.environ.get(ALLOCATOR) == "cuda_malloc_async":
            found.append(f"{ALLOCATOR} is 'cuda_malloc_async'")
        planned = {str(device.gpu.uuid): device for device in plan.devices}
        if current_stage() is Stage.READY:
            there = {uuid: tuple(gpu.limit or 0 for gpu in logical) for uuid, logical in devices.logical().items()}
            # Without a limit of ours, what TensorFlow calls the limit is what it found free.
            told = {uuid: device.limits for uuid, device in planned.items() if device.limits}
            if DEVICES in plan.environment and not plan.blind and set(there) != set(planned):
                found.append("TensorFlow sees other GPUs")
        elif listed() and plan.growth is not None:
            there, told = limits_now(), {uuid: device.limits for uuid, device in planned.items()}
        else:
            return tuple(found)
        for uuid, limits in told.items():
            if uuid in there and there[uuid] != limits:
                size = " + ".join(map(rounded, there[uuid])) or "nothing"
                found.append(f"the limit of GPU {planned[uuid].gpu.label} is {size}")
        return tuple(found)

    def _predict(self, gpus: Sequence[Gpu], outside: dict[str, str], patience: float) -> tuple[str, ...] | None:
        """What CUDA would show this process without what we changed; a process of its own asks where GPUs differ."""
        shown = visible.predict(gpus, outside) if gpus else ()
        if shown is not None:
            return shown
        question = (*sorted(outside.items()), *(str(gpu.uuid) for gpu in gpus))
        if question not in self._answers:
            theirs = {name: value for name, value in environment().items() if name not in VARIABLES}
            answer = cuda.ask_elsewhere(theirs | outside, patience=patience)
            if answer is None:
                return None
            self._answers[question] = answer
        return self._answers[question]


RUNTIME = Runtime()


def limits_now() -> dict[str, tuple[int, ...]]:
    """Bytes of the logical GPUs that TensorFlow was told to make, by their GPU's UUID; ask only once it has a list."""
    return {uuid: _bytes(parts) for uuid, parts in devices.read().parts.items() if uuid != devices.CPU}


def _bytes(parts: Sequence[int | None]) -> tuple[int, ...]:
    return tuple((size or 0) * MIB for size in parts)


def growth_in_force(process: ProcessState) -> bool:
    """Whether pools grow: the variable if it is exactly true or false, else tf.config's word if nothing drops that."""
    variable = process.environment.get(GROWTH)
    if variable in ("true", "false"):
        return variable == "true"
    return any(process.growth.values()) and not process.limits


def _settings(plan: Plan, theirs: Settings) -> Settings:
    """TensorFlow's settings as the plan wants them; where it says nothing, as they were before us."""
    planned = {str(device.gpu.uuid): devices.mebibytes(device.limits) for device in plan.devices}
    gone = [device.gpu.label for device in plan.devices if device.limits and str(device.gpu.uuid) not in theirs.growth]
    if gone:
        raise Refused(
            f"Not applied. CUDA does not show this process GPU {', '.join(gone)}, and did when it was asked. "
            "Restart, and say it again."
        )
    parts, growth = dict(theirs.parts), dict(theirs.growth)
    if plan.growth is not None:
        for uuid in growth:
            parts[uuid], growth[uuid] = planned.get(uuid, ()), plan.growth
    if plan.cpus is not None:
        parts[devices.CPU] = (None,) * plan.cpus
    seen = tuple(uuid for uuid in theirs.growth if uuid in planned) if plan.show else theirs.visible
    return Settings(parts=parts, growth=growth, visible=seen)


def _neighbour() -> str:
    """A library other than TensorFlow that may hold the context that somebody holds."""
    return next((name for name in NEIGHBOURS if name in sys.modules), "another library")
