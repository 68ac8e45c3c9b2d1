"""What this kernel says of itself: stage, policy and TensorFlow's own figures, as a `Report`. It wakes nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tfgpu_magic.config import pytorch, runtime
from tfgpu_magic.config.plan import Plan, in_words, renew
from tfgpu_magic.config.runtime import RUNTIME, devices
from tfgpu_magic.config.state import DEVICES, Kernel, Stage
from tfgpu_magic.monitor.report import GpuUse, LogicalGpu, Report
from tfgpu_magic.monitor.snapshot import Snapshot

PATIENCE = 0.4
"""Seconds to wait for CUDA's order of GPUs: a look must not take long, and the order is known after the first plan."""


def report(snapshot: Snapshot) -> Report:
    """This kernel's own word on each GPU of the snapshot."""
    kernel = RUNTIME.observe(snapshot.gpus, patience=PATIENCE)
    plan = RUNTIME.plan
    labels = {gpu.uuid: gpu.label for gpu in snapshot.gpus if gpu.uuid}
    uses = _uses(kernel, plan, labels)
    if uses or kernel.shown is not None:
        named = {use.gpu for use in uses}
        uses += [GpuUse(gpu=label, policy="hidden") for label in labels.values() if label not in named]
    waiting = plan is not None and kernel.stage is not Stage.READY
    notes = renew(plan, snapshot, waits=True).notes if plan is not None and waiting else ()
    return Report(
        pid=os.getpid(),
        summary=_summary(kernel, plan),
        uses=tuple(uses),
        notes=(*_changed(kernel), *_given(kernel), *notes),
        stage=kernel.stage.value,
    )


def brief() -> Report:
    """This kernel's own word for others: each GPU by its UUID, and none of what only its own user cares for.

    It looks at no GPU, so any thread may ask for it at any time; under a millisecond once it was asked.
    """
    kernel = RUNTIME.observe((), patience=0.0)
    return Report(pid=os.getpid(), summary="", uses=tuple(_uses(kernel, RUNTIME.plan, {})), stage=kernel.stage.value)


def _uses(kernel: Kernel, plan: Plan | None, labels: Mapping[str, str]) -> list[GpuUse]:
    """What is done with each GPU that TensorFlow sees or will see, and with those that only PyTorch uses."""
    figures, torch = devices.figures(), pytorch.figures()
    limits = _limits(kernel, plan)
    grows = runtime.growth_in_force(kernel)
    uses: list[GpuUse] = []
    number = 0
    for uuid in _seen(kernel, plan):
        sizes = limits.get(uuid, ())
        logical = figures.get(uuid) or _expected(number, sizes)
        number += len(logical)
        policy = in_words(sizes, grows=grows)
        uses.append(GpuUse(gpu=labels.get(uuid, uuid), policy=policy, logical=logical, torch=torch.pop(uuid, None)))
    return uses + [GpuUse(gpu=labels.get(uuid, uuid), torch=figure) for uuid, figure in torch.items()]


def _seen(kernel: Kernel, plan: Plan | None) -> Sequence[str]:
    """UUIDs of the GPUs that TensorFlow sees or will see, in its order."""
    if kernel.tensorflow_sees is not None:
        return kernel.tensorflow_sees
    if plan is not None and not kernel.frozen:
        return [str(device.gpu.uuid) for device in plan.devices]
    return kernel.shown or ()


def _limits(kernel: Kernel, plan: Plan | None) -> Mapping[str, tuple[int, ...]]:
    """Bytes of the logical GPUs of each GPU: TensorFlow's own word once it has a list, else the plan's."""
    if kernel.tensorflow_sees is not None:
        return runtime.limits_now()
    return {} if plan is None else {str(device.gpu.uuid): device.limits for device in plan.devices}


def _given(kernel: Kernel) -> tuple[str, ...]:
    """What hides GPUs that we have not hidden."""
    return (f"{DEVICES}={kernel.outside[DEVICES]!r} was set outside.",) if DEVICES in kernel.outside else ()


def _changed(kernel: Kernel) -> tuple[str, ...]:
    if not kernel.changed:
        return ()
    return (f"`{kernel.asked}` was asked, and somebody has changed it since: {'; '.join(kernel.changed)}.",)


def _expected(number: int, limits: Sequence[int]) -> tuple[LogicalGpu, ...]:
    """The logical GPUs that TensorFlow will make, the first of them `number`."""
    return tuple(LogicalGpu(name=f"GPU:{number + n}", limit=limit) for n, limit in enumerate(limits or (None,)))


def _summary(kernel: Kernel, plan: Plan | None) -> str:
    """One sentence on how far TensorFlow has come and what was asked of it."""
    module = runtime.tensorflow()
    version = f"TensorFlow {module.__version__}" if module is not None else "TensorFlow"
    asked = f"`{plan.asked}`" if plan is not None and plan.asked.requests else ""
    in_force = f" In force: {asked}." if asked and not kernel.changed else ""
    if plan is not None and plan.acts_on_nothing:
        in_force = f" {asked} has no GPU here to act on."
    if kernel.forked:
        return f"{version} used the GPUs when this process was forked, and cannot use them in it."
    if kernel.broken:
        return f"{version} failed for want of memory on a GPU; restart this {kernel.host}."
    if kernel.stage is Stage.READY:
        since = f" {kernel.since}" if kernel.since else ""
        return f"{version} is using {'the GPUs' if kernel.tensorflow_sees else 'the CPU'}{since}.{in_force}"
    if kernel.stage is Stage.POISONED:
        return f"{version} is imported, and something holds a CUDA context; nothing can be set until a restart."
    if kernel.stage is Stage.ABSENT:
        waits = f" Waiting: {asked}." if plan is not None and plan.needs_tensorflow else in_force
        return f"TensorFlow is not imported yet.{waits if asked else ' Nothing is asked of it.'}"
    standing = in_force or ("" if asked else " Nothing is asked of it.")
    return f"{version} is imported and has not used a GPU yet.{standing}"
