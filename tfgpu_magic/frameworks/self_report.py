"""This process's report on itself: stage, policy and its frameworks' own figures. It starts nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.frameworks.tensorflow import devices
from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.message import MAGIC, Message, msg
from tfgpu_magic.ground.report import GpuUse, LogicalGpu, Parked, Report
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.machine.owners.pids import descendants
from tfgpu_magic.policy import refusal
from tfgpu_magic.policy.decide import foreseen, renew
from tfgpu_magic.policy.memory import context_bytes
from tfgpu_magic.policy.plan import Plan, in_words
from tfgpu_magic.policy.process_state import ALLOCATOR, ASYNC, DEVICES, ProcessState, Stage
from tfgpu_magic.policy.tensorflow import too_late

_Changed: TypeAlias = Mapping[str, Mapping[str, int | None]]

ORDER_TIMEOUT = 0.4
"""Seconds to wait for CUDA's order of GPUs: a report must be quick, and the order is known after the first plan."""

away: Callable[[], Mapping[str, Parked]] = dict
"""Returns what was parked, by the GPU's UUID; `parking` sets it."""

_used_since: float | None = None

DEFAULT = "default: no limit"
"""The policy of a GPU for which nothing was asked."""

UNUSED = "not used by TensorFlow"
"""The policy of a GPU that nothing hides, and that TensorFlow's list has not."""


def report(snapshot: Snapshot) -> Report:
    """Return this process's report on each GPU of the snapshot."""
    process = RUNTIME.observe(snapshot.gpus, timeout=ORDER_TIMEOUT)
    plan = foreseen(RUNTIME.current, snapshot, process)
    labels = {gpu.uuid: gpu.label for gpu in snapshot.gpus if gpu.uuid}
    uses = _uses(process, plan, labels, _limits(process, plan), registry.changed_limits(plan.parts or ()))
    if uses or process.shown is not None:
        named = {use.gpu for use in uses}
        # TensorFlow may leave out what CUDA shows, or be built without it, and never ask.
        asks = not process.frozen or cuda.is_initialised() or DEVICES in process.environment
        uses += [
            GpuUse(gpu=label, policy="hidden" if asks and uuid not in process.skipped else UNUSED)
            for uuid, label in labels.items()
            if label not in named
        ]
    return Report(
        pid=os.getpid(),
        summary=_summary(process, plan),
        uses=tuple(uses),
        notes=tuple(dict.fromkeys(_notes(process, plan, snapshot))),
        stage=process.stage.value,
        waits=process_kind.room_wait,
    )


def short_report() -> Report:
    """Return this process's report for other processes: each GPU by its UUID, and nothing that only its user needs.

    It queries no GPU, so any thread may call it at any time; it takes less than a millisecond after the first call.
    """
    process = RUNTIME.observe((), timeout=0.0)
    plan = RUNTIME.current
    uses = tuple(_uses(process, plan, {}, _limits(process, plan), registry.changed_limits(plan.parts or ())))
    since = _note_use(uses)
    stage, waits = process.stage.value, process_kind.room_wait
    return Report(pid=os.getpid(), summary="", uses=uses, stage=stage, used_since=since, waits=waits)


def claims(report: Report) -> dict[str, int | None]:
    """Return the bytes of each GPU, by UUID, that this process may come to hold; None without a limit.

    CUDA's context comes to them. While it is parked, it has no limit either: others may have the room meanwhile.
    """
    plan = RUNTIME.current
    limits = _limits(RUNTIME.observe((), timeout=0.0), plan).by_gpu
    most = plan.most(limits, registry.imported_names(), registry.changed_limits(plan.parts or ()), promised=True)
    return {use.gpu: None if use.parked.size else most.get(use.gpu) for use in report.uses}


def _note_use(uses: Sequence[GpuUse]) -> float | None:
    """Return when this process was first seen to have taken memory, in seconds since the epoch; None before."""
    global _used_since
    if _used_since is None and any(use.least_held for use in uses):
        _used_since = time.time()
    return _used_since


def after_exit(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot as it will be when this process and its children have ended."""
    family = {os.getpid(), *descendants(os.getpid())}
    own: dict[str, int] = {}
    for row in snapshot.processes:
        if row.pid in family:
            own[row.gpu] = own.get(row.gpu, 0) + (row.held or 0)
    if all(row.pid != os.getpid() for row in snapshot.processes):
        # In a container the driver may list this process by another pid or not at all: the frameworks' figures count.
        pools = registry.pools(settings=True)
        for gpu in snapshot.gpus:
            there = [pool for pool in pools if pool.gpu == gpu.uuid]
            context = context_bytes(gpu.total or 0) if there else 0
            own[gpu.label] = own.get(gpu.label, 0) + context + sum(map(_held_size, there))
    return snapshot.without_processes(family, own)


def _held_size(pool: Pool) -> int:
    if pool.taken is not None:
        return pool.taken
    return pool.peak if pool.grows or pool.limit is None or not pool.peak else pool.limit


def _uses(
    process: ProcessState, plan: Plan, labels: Mapping[str, str], limits: _InForce, changed: _Changed
) -> list[GpuUse]:
    """Return the use of each GPU that TensorFlow sees or will see, and of those that only other frameworks use."""
    ready, figures, (by_gpu, grows, releases) = devices.logical(), registry.figures(), limits
    moved = away()
    seen = _visible_gpus(process, plan)
    here = {uuid: by_gpu[uuid] for uuid in seen if uuid in by_gpu}
    most = plan.most(here, registry.imported_names(), changed)
    unknown = process.stage is Stage.POISONED and not process.neighbour and not plan.asked.requests
    uses: list[GpuUse] = []
    number = 0
    for uuid in dict.fromkeys([*seen, *figures, *most, *moved]):
        limit = most.get(uuid)
        logical: tuple[LogicalGpu, ...] = ()
        policy = "" if limit is None else in_words((limit,), grows=False)
        if uuid in seen:
            sizes = by_gpu.get(uuid, ())
            logical = ready.get(uuid) or _expected(number, sizes)
            number += len(logical)
            policy = in_words(sizes, grows=grows, releases=releases) if sizes or grows else _default(ready.get(uuid))
            policy = "unknown" if unknown else policy
            if process.stage is Stage.ABSENT and limit is not None and any(uuid in one for one in changed.values()):
                policy = in_words((limit,), grows=False)
        if uuid in RUNTIME.differs_by_driver:
            policy = f"{policy}, not in force"
        use = GpuUse(
            gpu=labels.get(uuid, uuid),
            policy=policy,
            logical=logical,
            figures=figures.get(uuid, ()),
            parked=moved.get(uuid, Parked()),
        )
        uses.append(use)
    return uses


def _visible_gpus(process: ProcessState, plan: Plan) -> Sequence[str]:
    """Return the UUIDs of the GPUs that TensorFlow sees or will see, in its order."""
    if process.tensorflow_sees is not None:
        return process.tensorflow_sees
    if RUNTIME.plan is not None and not process.frozen:
        return [str(device.gpu.uuid) for device in plan.devices]
    return process.shown or ()


class _InForce(NamedTuple):
    """The bytes of each GPU's logical GPUs by UUID, and whether pools grow, and are CUDA's own, which keep to none."""

    by_gpu: Mapping[str, tuple[int, ...]]
    grows: bool
    releases: bool


def _limits(process: ProcessState, plan: Plan) -> _InForce:
    """Return the limits of the logical GPUs that are there, else those that are set, else the plan's."""
    settings, ready = devices.current_settings(), devices.logical()
    if process.environment.get(ALLOCATOR) == ASYNC or (plan.releases and not plan.judged):
        return _InForce({}, grows=True, releases=True)
    grows = settings.grows if plan.judged else plan.grows
    if process.tensorflow_sees is None:
        return _InForce({str(device.gpu.uuid): device.limits for device in plan.devices}, grows, releases=False)
    there = {uuid: tuple(gpu.limit or 0 for gpu in logical) for uuid, logical in ready.items()}
    sizes = {uuid: there.get(uuid, sizes) if sizes else () for uuid, sizes in settings.limits.items()}
    return _InForce(sizes, grows, releases=False)


def _default(logical: Sequence[LogicalGpu] | None) -> str:
    """Return what is taken without a limit: all that was free once TensorFlow's pool is there, or what others said."""
    size = sum(gpu.limit or 0 for gpu in logical or ())
    return f"default: up to {rounded(size)}" if size else DEFAULT


def limits_changed(plan: Plan, changed: _Changed, labels: Mapping[str, str]) -> Iterator[Message]:
    """Yield a note on each framework beside TensorFlow whose limit other code has changed."""
    for name, limits in changed.items():
        sizes = (
            f"{rounded(size) if size else 'no limit'} of GPU {labels.get(uuid, uuid)}" for uuid, size in limits.items()
        )
        yield msg(
            "`{policy}` was asked for, and other code has changed {name}'s limit since: {changes}.",
            policy=plan.asked_of_all,
            name=name,
            changes=", ".join(sizes),
        )


def _notes(process: ProcessState, plan: Plan, snapshot: Snapshot) -> Iterator[Message]:
    """Yield notes on what other code has changed, on the variable that hides GPUs, and the plan's own notes."""
    labels = {str(gpu.uuid): gpu.label for gpu in snapshot.gpus}
    asked = f"`{process.asked}` was asked for"
    if plan.configured and process.ceiling is not None:  # which nobody may have asked for
        asked = f"The ceiling here is `{process.ceiling}`"
    if process.finds_no_gpu:
        yield refusal.finds_no_gpu([labels.get(uuid, uuid) for uuid in process.skipped])
    elif process.changed:
        yield msg("{asked}, and is not in force: {changes}.", asked=asked, changes=", ".join(process.changed))
    changed = registry.changed_limits(plan.parts or ())
    yield from limits_changed(plan, changed, labels)
    if late := too_late(process, snapshot.gpus):
        yield late
    elif DEVICES in process.outside:
        given = f"{DEVICES}={process.outside[DEVICES]!r}"
        yield msg("{given} was not set by {magic}.", given=given, magic=MAGIC)
    if process.stage is not Stage.READY:
        false = [part.told for part in plan.parts or () if part.framework in changed]
        yield from (note for note in renew(plan, snapshot, waits=plan.judged).notes if note not in false)


def _expected(number: int, limits: Sequence[int]) -> tuple[LogicalGpu, ...]:
    return tuple(LogicalGpu(name=f"GPU:{number + n}", limit=limit) for n, limit in enumerate(limits or (None,)))


def _summary(process: ProcessState, plan: Plan) -> str:
    """Return a sentence on TensorFlow's stage and what was asked of it."""
    module = devices.tensorflow()
    version = f"TensorFlow {module.__version__}" if module is not None else "TensorFlow"
    asked = bool(plan.asked.requests)
    in_force = [f"In force: `{plan.asked}`."] if asked and not process.changed else []
    standing = in_force if asked else ["No policy is set."]
    if process.old:
        version = f"{version} (older than 2.16, the oldest that tfgpu_magic was tested with)"
    unseen = process.finds_no_gpu or (plan.devices and process.tensorflow_sees == ())
    if asked and (plan.acts_on_nothing or unseen):
        in_force = standing = [f"`{plan.asked}` has no effect here: TensorFlow sees no GPU."]
    if process.forked:
        return f"{version} used the GPUs when this process was forked, and cannot use them in it."
    if process.broken:
        return f"{version} failed to start for lack of memory on a GPU; restart this {process.host}."
    if process.stage is Stage.READY:
        what = "the GPUs" if process.tensorflow_sees else "the CPU"
        since = f" {process.since}" if process.since else ""
        return " ".join((f"{version} is using {what}{since}.", *in_force))
    if process.stage is Stage.POISONED:
        return f"{version} is imported, and something holds a CUDA context; nothing can be set until a restart."
    if process.stage is Stage.ABSENT:
        if asked and plan.needs_tensorflow:
            standing = [f"`{plan.asked}` takes effect when it is imported."]
        return " ".join(("TensorFlow is not imported yet.", *standing))
    return " ".join((f"{version} is imported and has not used a GPU yet.", *standing))
