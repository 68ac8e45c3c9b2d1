"""The stage of TensorFlow in this process, its variables and the GPUs that they show, and all else that a plan needs.

Plain data, made by `runtime`, and pure: CUDA itself is not called. Sources: CUDA C++ Programming Guide, "CUDA
Environment Variables"; NVIDIA MIG User Guide, "CUDA Visible Devices".
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.policy.policy import NOTHING, Policy

if TYPE_CHECKING:
    from tfgpu_magic.ground.process_kind import ProcessKind
    from tfgpu_magic.ground.snapshot import Gpu
    from tfgpu_magic.policy.ceiling import Ceiling
    from tfgpu_magic.policy.plan import FrameworkPlan, FrameworkState, Plan
    from tfgpu_magic.policy.promises import Promise

GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
ALLOCATOR = "TF_GPU_ALLOCATOR"
ASYNC = "cuda_malloc_async"
"""The allocator that has its memory from CUDA's own pool."""
DEVICE_CAP = "TF_PER_DEVICE_MEMORY_LIMIT_MB"
LEAST_MULTIPROCESSORS = "TF_MIN_GPU_MULTIPROCESSOR_COUNT"
DEVICES = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
VARIABLES = (GROWTH, ALLOCATOR, DEVICE_CAP, LEAST_MULTIPROCESSORS, DEVICES, ORDER)
"""The environment variables that decide what TensorFlow does with GPUs."""


class Stage(enum.Enum):
    """The stages of TensorFlow in a process. In each, less can still be set than in the one before."""

    ABSENT = "not imported"
    IMPORTED = "imported"
    LISTED = "imported, its GPUs listed"
    POISONED = "imported, with a CUDA context that it does not know of"
    READY = "using the GPUs"


class ProcessState(NamedTuple):
    """What matters about this process when a policy is to be applied.

    Attributes:
        anew: whether it is still to start, so that no framework is imported in it yet.
        stage: TensorFlow's stage.
        environment: those of `VARIABLES` that are set now.
        outside: the same without what we changed.
        frozen: CUDA is initialised, or TensorFlow has made its list, so `CUDA_VISIBLE_DEVICES` has no effect any more.
        shown: UUIDs of the GPUs that CUDA shows, or while not frozen would show with `outside`, in CUDA's order; None
            where that is unknown.
        given: UUIDs of the GPUs that CUDA would show without us; other than `shown` where we hid some and it is frozen.
        tensorflow_sees: of `shown`, those that TensorFlow's visible devices name; None while it has no list.
        skipped: UUIDs of GPUs in `shown` that TensorFlow left out of its list; empty while it has no list.
        growth: whether memory growth was switched on through `tf.config`, not by us, by UUID; None if not set.
        limits: bytes of the logical devices made through `tf.config`, not by us, by UUID; of the CPU too.
        neighbour: another library of this process that may hold the CUDA context there (``torch``); None without one.
        forked: CUDA was running when this process was forked, so it cannot be used here.
        asked: the policy in force or waiting, as it was asked.
        settled: the same with each choice of GPUs replaced by the GPUs that were chosen.
        changed: what other code has changed since, so that it is not as asked; a phrase each.
        since: the cell that made it too late, as a phrase, if known.
        broken: TensorFlow failed to make its context for lack of memory, and must not be tried again.
        claims: how many other kernels of this user have picked each GPU, by UUID, plus perhaps a random tie-breaker
            below one.
        promises: what other processes of this user may yet take of each GPU, in the order of asking.
        old: the version of TensorFlow, where it is older than any that tfgpu_magic was tested with.
        host: what this process is to its user.
        keras: Keras' backend if another than TensorFlow is set; else None.
        ceiling: the most that each framework in it may take of each GPU; None without a ceiling.
        plan: the plan in force or waiting; None where nothing was asked.
        frameworks: the frameworks beside TensorFlow that are installed; none where none of them matters.
    """

    anew: bool = False
    stage: Stage = Stage.ABSENT
    environment: Mapping[str, str] = MappingProxyType({})
    outside: Mapping[str, str] = MappingProxyType({})
    frozen: bool = False
    shown: tuple[str, ...] | None = None
    given: tuple[str, ...] | None = None
    tensorflow_sees: tuple[str, ...] | None = None
    skipped: tuple[str, ...] = ()
    growth: Mapping[str, bool | None] = MappingProxyType({})
    limits: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    neighbour: str | None = None
    forked: bool = False
    asked: Policy = NOTHING
    settled: Policy = NOTHING
    changed: tuple[str, ...] = ()
    since: str | None = None
    broken: bool = False
    claims: Mapping[str, float] = MappingProxyType({})
    promises: tuple[Promise, ...] = ()
    old: str | None = None
    host: ProcessKind = "kernel"
    keras: str | None = None
    ceiling: Ceiling | None = None
    plan: Plan | None = None
    frameworks: tuple[FrameworkState, ...] = ()

    @property
    def asked_of_all(self) -> Policy:
        """What the frameworks beside TensorFlow are asked, in force or waiting."""
        return NOTHING if self.plan is None else self.plan.asked_of_all

    @property
    def parts_in_force(self) -> Mapping[str, FrameworkPlan]:
        """What is done about the frameworks beside TensorFlow now, by their names; a new process has nothing of it."""
        parts = () if self.anew or self.plan is None else self.plan.parts or ()
        return {part.framework: part for part in parts}

    @property
    def finds_no_gpu(self) -> bool:
        """Whether CUDA shows GPUs, and TensorFlow's list has none of them, as where a library is missing."""
        return bool(self.skipped) and self.skipped == self.shown

    @property
    def fixed(self) -> bool:
        """Whether nothing that is set now would be enforced: only a new process could."""
        begun = self.broken or self.stage in (Stage.READY, Stage.POISONED)
        return self.forked or (begun and not self.finds_no_gpu)  # without a GPU there is nothing to enforce

    def begun_anew(self) -> ProcessState:
        """Return the state of a new process with this one's policy, in which no framework is imported yet."""
        return ProcessState(
            anew=True,
            host=self.host,
            keras=self.keras,
            old=self.old,
            outside=self.outside,
            environment=self.outside,
            shown=self.given,
            given=self.given,
            asked=self.asked,
            settled=self.settled,
            promises=self.promises,
            ceiling=self.ceiling,
            plan=self.plan,
        )


def predict_shown(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the UUIDs of the GPUs that CUDA will show, in its order; None where only CUDA can decide.

    CUDA numbers GPUs fastest first unless it is set to follow the PCI bus, as nvidia-smi does; that matters where GPUs
    differ. With MIG on, what is shown is CUDA's own choice.
    """
    entries = [entry.strip() for entry in environment.get(DEVICES, "all").split(",")]
    if entries[0] in ("", "-1"):
        return ()
    if any(gpu.mig or gpu.instance is not None or gpu.uuid is None for gpu in gpus):
        return None
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid is not None and not gpu.lost]
    if all(entry.startswith("GPU-") for entry in entries):  # their order is the list's own
        return _listed(entries, uuids)
    if any(gpu.lost for gpu in gpus) and DEVICES in environment:
        return None  # CUDA may number those that are left
    alike = len({(gpu.name, gpu.total) for gpu in gpus}) <= 1
    if not alike and environment.get(ORDER) != "PCI_BUS_ID":
        return None
    if DEVICES not in environment:
        return tuple(uuids)
    return _listed(entries, uuids)


def _listed(entries: Sequence[str], uuids: Sequence[str]) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that a list names, as CUDA reads it."""
    shown: list[str] = []
    for entry in entries:
        uuid = _entry(entry, uuids)
        if uuid is None:
            break  # CUDA stops at the first entry that names no GPU
        if uuid in shown:
            return ()  # CUDA shows nothing when an entry comes twice
        shown.append(uuid)
    return tuple(shown)


def _entry(text: str, uuids: Sequence[str]) -> str | None:
    if text.isascii() and text.isdigit():
        return uuids[int(text)] if int(text) < len(uuids) else None
    if not text.startswith("GPU-"):
        return None
    matches = [uuid for uuid in uuids if uuid.lower().startswith(text.lower())]
    return matches[0] if len(matches) == 1 else None


def showing(gpus: Sequence[Gpu], among: Sequence[Gpu] = ()) -> dict[str, str]:
    """Return the variables that make CUDA show just these GPUs, in this order.

    The GPUs are given by numbers where that is possible, because other libraries read the variable too; by UUIDs for
    MIG instances, and where a lost GPU may shift CUDA's numbers against nvidia-smi's.

    Args:
        gpus: the GPUs to show.
        among: all of the machine's GPUs.
    """
    if not gpus:
        return {DEVICES: "-1"}
    shifted = any(gpu.lost for gpu in among) and all(gpu.uuid for gpu in gpus)
    if all(gpu.instance is None for gpu in gpus) and not shifted:
        return {ORDER: "PCI_BUS_ID", DEVICES: ",".join(str(gpu.index) for gpu in gpus)}
    return {DEVICES: ",".join(str(gpu.uuid) for gpu in gpus)}
