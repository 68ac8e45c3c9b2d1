"""How far TensorFlow has come in this process, and what surrounds it: plain data, which `runtime` fills in."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfgpu_magic.config.policy import NOTHING, Policy

GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
ALLOCATOR = "TF_GPU_ALLOCATOR"
DEVICE_CAP = "TF_PER_DEVICE_MEMORY_LIMIT_MB"
LEAST_MULTIPROCESSORS = "TF_MIN_GPU_MULTIPROCESSOR_COUNT"
DEVICES = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
VARIABLES = (GROWTH, ALLOCATOR, DEVICE_CAP, LEAST_MULTIPROCESSORS, DEVICES, ORDER)
"""The environment variables that decide what TensorFlow does with GPUs."""


class Stage(enum.Enum):
    """How far TensorFlow has come. Each stage leaves less that can still be set."""

    ABSENT = "not imported"
    IMPORTED = "imported"
    LISTED = "imported, its GPUs listed"
    POISONED = "imported, its allocators made behind its back"
    READY = "using the GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What matters about this process when a policy is to be applied.

    Attributes:
        stage: how far TensorFlow has come.
        environment: those of `VARIABLES` that are set now.
        outside: the same without what we changed.
        frozen: CUDA is initialised, so `CUDA_VISIBLE_DEVICES` counts no more.
        shown: UUIDs of the GPUs that CUDA shows, or while not frozen would show `outside`, in CUDA's order; None
            where nobody can tell.
        tensorflow_sees: of `shown`, those that TensorFlow's visible devices name; None while it has no list.
        skipped: UUIDs of GPUs in `shown` that TensorFlow left out of its list; empty while it has no list.
        grows: memory growth was switched on through `tf.config`, not by us.
        neighbour: another library of this process that holds a CUDA context (``torch``), if one does.
        asked: the policy in force or waiting, as it was asked.
        settled: the same with each `Pick` settled to GPUs.
        since: which cell made it too late, in words, if known.
        broken: TensorFlow failed to make its context for want of memory, and must not be tried again.
    """

    stage: Stage = Stage.ABSENT
    environment: Mapping[str, str] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)
    frozen: bool = False
    shown: tuple[str, ...] | None = None
    tensorflow_sees: tuple[str, ...] | None = None
    skipped: tuple[str, ...] = ()
    grows: bool = False
    neighbour: str | None = None
    asked: Policy = NOTHING
    settled: Policy = NOTHING
    since: str | None = None
    broken: bool = False
