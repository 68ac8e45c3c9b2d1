"""What is sent with a call besides its values, and what comes back besides its result: plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tfgpu_magic.config.policy import NOTHING, Policy
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.isolate.process.inherited import Inherited
from tfgpu_magic.monitor.report import GpuUse
from tfgpu_magic.monitor.snapshot import Snapshot

WORK, SHOW, SHOWN, AGAIN, APART, LEAVE = "work", "show", "shown", "again", "apart", "leave"
"""Messages: the values of a call; a display and its number, and that it was shown; a request for the last message once
more; the same for the answer in self-contained pieces; the leave to end."""

ANSWER = "answer"
"""A message that ends a call: its facts, and the parts of what it returned and of what it raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How a worker process is to be set up, before it unpickles any value of the call.

    Attributes:
        runner: the function that runs the call, ``module:name``; see `worker.Runner`.
        environment: every environment variable.
        directory: the working directory.
        path: where modules are imported from.
        arguments: the program's command line.
        inherited: what else it takes from its caller.
        apply: sets TensorFlow up, given a policy and a function that returns the GPUs; imported there by its name.
        policy: the policy for its GPUs.
        frameworks: for which frameworks the policy is, as `apply` takes it.
        others: what the frameworks beside TensorFlow are asked, where the policy is for TensorFlow alone.
        snapshot: the GPUs as they were when the policy was chosen; None to read them anew.
    """

    runner: str
    environment: Mapping[str, str]
    directory: str
    path: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    inherited: Inherited = field(default_factory=Inherited)
    apply: Callable[..., object]
    policy: Policy = NOTHING
    frameworks: str = "tensorflow"
    others: Policy = NOTHING
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a worker process reports of itself and of its answer when it has done its work.

    Attributes:
        uses: the memory that its frameworks report, by GPU UUID; empty where none was used.
        pools: its frameworks' pools.
        values: how many of the answer's parts are what the call returned; those after them are what it raised.
    """

    uses: tuple[GpuUse, ...] = ()
    pools: tuple[Pool, ...] = ()
    values: int = 0
