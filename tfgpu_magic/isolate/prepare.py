"""Makes the `Order` of a call: its worker process is set up as this process is, with what its lease gives it."""

from __future__ import annotations

import sys
from pathlib import Path

from tfgpu_magic import control
from tfgpu_magic.config.policy import NOTHING, Policy
from tfgpu_magic.config.request import Memory, Reset
from tfgpu_magic.config.runtime import RUNTIME
from tfgpu_magic.isolate.lease import Lease
from tfgpu_magic.isolate.process import inherited, keras_settings
from tfgpu_magic.isolate.process.order import Order
from tfgpu_magic.monitor.report import TENSORFLOW


def order(lease: Lease, runner: str, *, for_all: Policy = NOTHING) -> Order:
    """Return the order for a process that is set up as this one is, but for its policy.

    Args:
        lease: what it may have of the GPUs.
        runner: as in `Order`.
        for_all: what is asked of every framework in it, beside what is asked of each here.
    """
    others = NOTHING if lease.environment else _others(lease, for_all)  # that hides all GPUs
    own = others.for_framework(TENSORFLOW).memory
    asked = bool(for_all.requests) or not control.current().configured  # of what is configured, no call is refused
    together = asked and bool(own) and own == lease.policy.memory  # TensorFlow is asked what all are, as one of them
    kept = (request for request in lease.policy if not isinstance(request, Memory))
    return Order(
        runner=runner,
        environment={**RUNTIME.environment_for_children(), **lease.environment},
        directory=str(Path.cwd()),
        path=tuple(sys.path),
        arguments=tuple(sys.argv),
        inherited=inherited.here(),
        apply=control.apply,
        policy=Policy((*kept, *others.memory)) if together else lease.policy,
        frameworks="all" if together else "tensorflow",
        others=NOTHING if together else others,
        snapshot=lease.snapshot,
        precision=keras_settings.read(),
    )


def _others(lease: Lease, for_all: Policy) -> Policy:
    """Return what the frameworks beside TensorFlow are asked in a call; its own words are as its lease has them."""
    words = Policy(tuple(request for request in for_all if isinstance(request, Memory | Reset)))
    if words.memory and not set(words.memory) <= set(lease.policy.memory):  # in bytes, of GPUs of its own
        words = Policy(lease.policy.memory)
    return control.current().of_others.then(words)
