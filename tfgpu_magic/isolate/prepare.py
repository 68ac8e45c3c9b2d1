"""Orders for calls: the process of a call is set up as this one is, with the policy that is asked for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfgpu_magic.config import words
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.config.runtime import RUNTIME
from tfgpu_magic.isolate import pickling
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.order import Order
from tfgpu_magic.monitor.look import look


def prepare(policy: str | Policy | None, *, runner: str, **more: Any) -> Order:
    """The order for a process that is as this one is, with the policy that holds here and then the one that is given.

    Raises:
        PolicyError: the words are no policy.
    """
    environment, asked = RUNTIME.bequest()
    if policy:
        asked = asked.then(words.parse(policy) if isinstance(policy, str) else policy)
    return Order(
        runner=runner,
        environment=environment,
        directory=str(Path.cwd()),
        path=tuple(sys.path),
        arguments=tuple(sys.argv),
        policy=asked,
        snapshot=look() if asked.requests else None,
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
    settings = {"name": pickling.name_of(function)}
    order = prepare(policy, runner="tfgpu_magic.isolate.infant:call", settings=settings)
    work = pickling.dump_call(function, args, kwargs)
    return Call(order=order, work=work, timeout=timeout).run().value()
