"""This process's TensorFlow: THE ONLY room that touches `tf.config` and TensorFlow's environment variables.

It never imports TensorFlow and never wakes it: it works with the TensorFlow that the user has imported, or waits.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tfgpu_magic.config import cuda, visible
from tfgpu_magic.config.plan import Plan
from tfgpu_magic.config.policy import NOTHING
from tfgpu_magic.config.state import GROWTH, VARIABLES, Kernel, Stage
from tfgpu_magic.errors import Refused
from tfgpu_magic.monitor.report import LogicalGpu
from tfgpu_magic.monitor.snapshot import Gpu
from tfgpu_magic.units import MIB

NEIGHBOURS = ("torch", "jax", "cupy", "numba.cuda", "pycuda")
"""Libraries that may hold a CUDA context of their own in a kernel."""

_CONTEXT = "tensorflow.python.eager.context"


class Runtime:
    """What was done to this process so far. There is one, `RUNTIME`.

    Attributes:
        plan: the plan in force or waiting for TensorFlow; None while nothing was asked.
        since: which cell made it too late, in words, if somebody watches the cells.
        broken: TensorFlow failed to make its context for want of memory.
    """

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.since: str | None = None
        self.broken = False
        self._before: dict[str, str | None] = {}
        self._set: dict[str, str | None] = {}
        self._answers: dict[tuple[object, ...], tuple[str, ...]] = {}  # CUDA's order does not change while we live

    def observe(self, gpus: Sequence[Gpu], *, patience: float = cuda.PATIENCE) -> Kernel:
        """How this process stands now, on a machine with these GPUs. Changes nothing and wakes nothing.

        Args:
            gpus: the machine's GPUs.
            patience: seconds that CUDA may take to tell its order of GPUs, where only it can.
        """
        frozen = cuda.initialised()
        stage = current_stage()
        listed = stage in (Stage.LISTED, Stage.READY)
        sees, skipped = _listed() if listed else (None, ())
        return Kernel(
            stage=stage,
            environment={name: os.environ[name] for name in VARIABLES if name in os.environ},
            outside=self._outside(),
            frozen=frozen,
            shown=cuda.shown() if frozen else self._predict(gpus, patience),
            tensorflow_sees=sees,
            skipped=skipped,
            grows=_grows() if listed else False,
            neighbour=_neighbour() if frozen and stage is not Stage.READY else None,
            asked=self.plan.asked if self.plan else NOTHING,
            settled=self.plan.settled if self.plan else NOTHING,
            since=self.since,
            broken=self.broken,
        )

    def apply(self, plan: Plan) -> None:
        """Do what the plan says, whole or not at all.

        Where TensorFlow must be told and is not imported yet, the rest waits: call `tell` once it is.

        Raises:
            Refused: TensorFlow did not take it; everything is as it was.
        """
        previous = {name: os.environ.get(name) for name in plan.environment}
        self._export(plan.environment)
        if current_stage() is not Stage.ABSENT:
            try:
                self.tell(plan)
            except Refused:
                self._export(previous)
                raise
        self.plan = plan

    def tell(self, plan: Plan) -> None:
        """Tell the imported TensorFlow what only its own API can set, whole or not at all.

        Raises:
            Refused: TensorFlow did not take it; its settings are as they were.
        """
        # Where TensorFlow has listed nothing yet, nothing can be set that the plan would have to undo.
        if plan.needs_tensorflow or current_stage() is Stage.LISTED:
            _configure(plan, undo=self.plan)

    def _predict(self, gpus: Sequence[Gpu], patience: float) -> tuple[str, ...] | None:
        """What CUDA would show this process without what we changed; a process of its own asks where GPUs differ."""
        outside = self._outside()
        shown = visible.predict(gpus, outside) if gpus else ()
        if shown is not None:
            return shown
        question = (*sorted(outside.items()), *(str(gpu.uuid) for gpu in gpus))
        if question not in self._answers:
            theirs = {name: value for name, value in os.environ.items() if name not in VARIABLES}
            answer = cuda.ask_elsewhere(theirs | outside, patience=patience)
            if answer is None:
                return None
            self._answers[question] = answer
        return self._answers[question]

    def _outside(self) -> dict[str, str]:
        """A variable that is as we left it stands for what was there before; one changed since is the user's."""
        found: dict[str, str] = {}
        for name in VARIABLES:
            value = os.environ.get(name)
            if name in self._set and value == self._set[name]:
                value = self._before[name]
            if value is not None:
                found[name] = value
        return found

    def _export(self, environment: Mapping[str, str | None]) -> None:
        outside = self._outside()
        for name, value in environment.items():
            self._before[name], self._set[name] = outside.get(name), value
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


RUNTIME = Runtime()


def current_stage() -> Stage:
    """How far TensorFlow has come in this process, without moving it.

    Source: TensorFlow 2.16 to 2.21, `eager/context.py`; there is no public way to ask.
    """
    if tensorflow() is None:
        return Stage.ABSENT
    context = getattr(sys.modules.get(_CONTEXT), "_context", None)
    if context is not None and (context._initialized or context._context_handle is not None):
        return Stage.READY
    if not cuda.initialised():
        return Stage.IMPORTED
    if cuda.has_context() and _neighbour() is None:
        return Stage.POISONED
    return Stage.LISTED


def tensorflow() -> Any | None:
    """The TensorFlow that this process has imported whole, if it has."""
    module = sys.modules.get("tensorflow")
    return module if hasattr(module, "__version__") else None


def memory() -> dict[str, tuple[LogicalGpu, ...]]:
    """TensorFlow's own figures, by the UUID of the GPU that each logical GPU is on; nothing before it is ready.

    Some 10 µs a logical GPU, and 0.7 ms for the list. Bytes in use and at peak are the allocator's; the CUDA context
    is not in them.
    """
    tf = tensorflow()
    if tf is None or current_stage() is not Stage.READY:
        return {}
    from tensorflow.python.client import device_lib

    # Never without session_config: TensorFlow would make allocators of its own, and not count them.
    devices = device_lib.list_local_devices(session_config=tf.__internal__.eager_context.get_config())
    uuids = cuda.by_pci()
    found: dict[str, tuple[LogicalGpu, ...]] = {}
    for device in devices:
        pci = re.search(r"pci bus id: ([0-9a-f:.]+)", device.physical_device_desc)
        if device.device_type != "GPU" or pci is None or pci[1] not in uuids:
            continue
        name = device.name.removeprefix("/device:")
        figures = tf.config.experimental.get_memory_info(name)
        logical = LogicalGpu(name=name, in_use=figures["current"], peak=figures["peak"], limit=device.memory_limit)
        uuid = uuids[pci[1]]
        found[uuid] = (*found.get(uuid, ()), logical)
    return found


def limits() -> dict[str, tuple[int, ...]]:
    """Bytes of the logical GPUs that TensorFlow was told to make, by their GPU's UUID; ask only when it is ready."""
    tf, shown = tensorflow(), cuda.shown()
    assert tf is not None  # noqa: S101  # the caller has seen it
    configured = {
        _number(gpu): tf.config.get_logical_device_configuration(gpu) or ()
        for gpu in tf.config.list_physical_devices("GPU")
    }
    return {uuid: tuple(part.memory_limit * MIB for part in configured.get(n, ())) for n, uuid in enumerate(shown)}


def growth_in_force(kernel: Kernel) -> bool:
    """Whether pools grow: the variable if it is exactly true or false, else tf.config's word if nothing drops that."""
    variable = kernel.environment.get(GROWTH)
    if variable in ("true", "false"):
        return variable == "true"
    context = getattr(sys.modules.get(_CONTEXT), "_context", None)
    return kernel.grows and not getattr(context, "_virtual_device_map", None)


def _listed() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """UUIDs of the GPUs that TensorFlow's visible devices name, and of those that its list leaves out."""
    tf, shown = tensorflow(), cuda.shown()
    assert tf is not None  # noqa: S101  # the stage says so
    names = [_number(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    sees = [_number(gpu) for gpu in tf.config.get_visible_devices("GPU")]
    return (
        tuple(shown[n] for n in sees if n < len(shown)),
        tuple(uuid for n, uuid in enumerate(shown) if n not in names),
    )


def _number(device: Any) -> int:
    """The CUDA ordinal in ``/physical_device:GPU:0``."""
    return int(device.name.rpartition(":")[2])


def _grows() -> bool:
    """Whether somebody switched growth on through `tf.config`."""
    tf = tensorflow()
    return tf is not None and any(
        tf.config.experimental.get_memory_growth(gpu) for gpu in tf.config.list_physical_devices("GPU")
    )


def _neighbour() -> str | None:
    """A library other than TensorFlow that may hold the context that somebody holds."""
    if not cuda.has_context():
        return None
    return next((name for name in NEIGHBOURS if name in sys.modules), None)


def _configure(plan: Plan, *, undo: Plan | None) -> None:
    """Set logical and visible devices, drop those of the plan before, and take all back when one is not taken."""
    tf = tensorflow()
    assert tf is not None  # noqa: S101  # the caller has seen it
    gpus, shown = tf.config.list_physical_devices("GPU"), cuda.shown()
    if [_number(gpu) for gpu in gpus] != list(range(len(shown))):
        raise Refused("TensorFlow does not use every GPU that CUDA shows it, and mistakes the numbers of the others.")
    physical = dict(zip(shown, gpus, strict=True))
    gone = [device.gpu.label for device in plan.devices if device.limits and device.gpu.uuid not in physical]
    if gone:
        raise Refused(f"CUDA does not show this process GPU {', '.join(gone)}.")
    parts = _parts(tf, plan, physical, undo=undo)
    before = {device: tf.config.get_logical_device_configuration(device) for device in parts}
    visible = tf.config.get_visible_devices("GPU")
    try:
        for device, wanted in parts.items():
            _divide(tf, device, wanted)
        if plan.growth is not None and all(tf.config.get_logical_device_configuration(gpu) is None for gpu in gpus):
            for gpu in gpus:
                # The variable decides; but TensorFlow still fails when its own settings differ between GPUs.
                tf.config.experimental.set_memory_growth(gpu, plan.growth)
        if plan.show:
            seen = {device.gpu.uuid for device in plan.devices}
            tf.config.set_visible_devices([gpu for uuid, gpu in physical.items() if uuid in seen], "GPU")
    except (RuntimeError, ValueError, AttributeError) as error:
        for device, old in before.items():
            _divide(tf, device, old)
        tf.config.set_visible_devices(visible, "GPU")
        raise Refused(f"Not applied. TensorFlow did not take it: {error}") from error


def _parts(tf: Any, plan: Plan, physical: Mapping[str, Any], *, undo: Plan | None) -> dict[Any, list[Any] | None]:
    """The logical devices to make of each physical one, None for no division; where the words speak of it or did."""
    parts: dict[Any, list[Any] | None] = {}
    if plan.growth is not None or (undo is not None and undo.limited):
        limits = {device.gpu.uuid: device.limits for device in plan.devices}
        for uuid, gpu in physical.items():
            sizes = [size // MIB for size in limits.get(uuid, ())]
            parts[gpu] = [tf.config.LogicalDeviceConfiguration(memory_limit=size) for size in sizes] or None
    if plan.cpus is not None or (undo is not None and undo.cpus is not None):
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts[cpu] = [tf.config.LogicalDeviceConfiguration()] * plan.cpus if plan.cpus else None
    return parts


def _divide(tf: Any, device: Any, parts: list[Any] | None) -> None:
    """Divide a physical device into logical ones, or take its division back."""
    if parts:
        tf.config.set_logical_device_configuration(device, parts)
    elif tf.config.get_logical_device_configuration(device) is not None:
        # An empty list is accepted and makes the first op fail, and there is no public way to take a division back.
        sys.modules[_CONTEXT].context()._virtual_device_map.pop(device)
