"""Orders for calls: the process of a call is set up as this one is, with the policy that is asked for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfgpu_magic.config import visible, words
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.runtime import RUNTIME
from tfgpu_magic.isolate import pickling
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.guard import ROOTS
from tfgpu_magic.isolate.order import Order
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.snapshot import Snapshot


def prepare(policy: str | Policy | None, *, runner: str, **more: Any) -> Order:
    """The order for a process that is as this one is, with the policy that holds here and then the one that is given.

    Raises:
        PolicyError: the words are no policy.
    """
    _, asked = RUNTIME.bequest()
    if policy:
        asked = asked.then(words.parse(policy) if isinstance(policy, str) else policy)
    return order(asked, look() if asked.requests else None, runner=runner, **more)


def order(
    policy: Policy,
    snapshot: Snapshot | None,
    *,
    runner: str,
    hidden: bool = False,
    imported: frozenset[str] | None = None,
    **more: Any,
) -> Order:
    """The order for a process that is as this one is, but for its policy.

    Args:
        policy: all that is asked of TensorFlow there.
        snapshot: the GPUs, as they were when the policy was chosen; None to look there, if the policy needs it.
        runner: as in `Order`.
        hidden: no GPU is seen there, whoever looks.
        imported: as in `Order`; None where this process is the caller.
        more: as in `Order`.
    """
    environment, _ = RUNTIME.bequest()
    return Order(
        runner=runner,
        environment=environment | (visible.variable(()) if hidden else {}),
        directory=str(Path.cwd()),
        path=tuple(sys.path),
        arguments=tuple(sys.argv),
        policy=policy,
        imported=ROOTS & sys.modules.keys() if imported is None else imported,
        snapshot=snapshot,
        **more,
    )


def run(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    policy: str | None = None,
    timeout: float | None = None,
) -> Any:
    """Run a call to its end, and return what it returns."""
    name = getattr(function, "__qualname__", "the call")
    order = prepare(policy, runner="tfgpu_magic.isolate.infant:call", settings={"name": name})
    work = pickling.dump((function, args, kwargs), name)
    return Call(order=order, work=work, timeout=timeout).run().value()
