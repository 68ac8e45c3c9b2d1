"""Makes the `Order` of a call: its worker process is set up as this process is, with what its lease gives it."""

from __future__ import annotations

import sys
from pathlib import Path

from tfgpu_magic import control
from tfgpu_magic.config.runtime import RUNTIME
from tfgpu_magic.control import Frameworks
from tfgpu_magic.isolate.lease import Lease
from tfgpu_magic.isolate.process import inherited, keras_settings
from tfgpu_magic.isolate.process.order import Order
from tfgpu_magic.isolate.values.guard import ROOTS


def order(
    lease: Lease, runner: str, *, imported: frozenset[str] | None = None, frameworks: Frameworks = "tensorflow"
) -> Order:
    """Return the order for a process that is set up as this one is, but for its policy.

    Args:
        lease: what it may have of the GPUs.
        runner: as in `Order`.
        imported: as in `Order`; None where this process is the caller.
        frameworks: whether its policy is for TensorFlow, or for all frameworks; it is for all where this process's is.
    """
    of_all = all(request.of_any_framework for request in lease.policy.memory)
    asked = frameworks == "all" or bool(control.current().others.requests)
    return Order(
        runner=runner,
        environment={**RUNTIME.environment_for_children(), **lease.environment},
        directory=str(Path.cwd()),
        path=tuple(sys.path),
        arguments=tuple(sys.argv),
        inherited=inherited.here(),
        apply=control.apply,
        policy=lease.policy,
        frameworks="all" if asked and of_all else "tensorflow",
        snapshot=lease.snapshot,
        imported=ROOTS & sys.modules.keys() if imported is None else imported,
        precision=keras_settings.read(),
    )
