"""What travels with a call besides its values, and what comes home besides its result: plain data."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tfgpu_magic.config.policy import NOTHING, Policy
from tfgpu_magic.isolate.process.inherited import Inherited
from tfgpu_magic.monitor.report import GpuUse
from tfgpu_magic.monitor.snapshot import Snapshot

WORK, SHOW, SHOWN, APART, LEAVE, HEARD = "work", "show", "shown", "apart", "leave", "heard"
"""Messages: the values of a call; a display and its number, and that it was shown; that the answer is wanted once more,
in pieces that stand by themselves; that the process may end; that an interrupt was heard."""

ANSWER_ME = signal.SIGURG
"""A signal that follows an interrupt and is answered once Python has heard that, whoever handles it there. Programs
that know nothing of it ignore it."""

ANSWER = "answer"
"""A message that ends a call: its facts, and the parts of what it gave and of what it raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How a call's process is to be set up, before it sees any value of the call.

    Attributes:
        runner: the function that runs the call, ``module:name``; see `result.Runner`.
        environment: every environment variable.
        directory: the working directory.
        path: where modules are imported from.
        arguments: the program's command line.
        station: what it is to have from its caller besides.
        apply: sets TensorFlow up, given a policy and what sees the GPUs; by its name, where the process imports it.
        policy: what is asked of TensorFlow's GPUs.
        snapshot: the GPUs, as they were when the policy was chosen; None to look anew.
        imported: which of `guard.ROOTS` the caller has imported; no other may come home.
        precision: Keras' settings for the whole process, as `keras_settings.read` gives them.
        lingers: whether the process waits for leave when it has answered, so that what it holds can be seen
            and what it gives be taken.
        grace: seconds that threads may go on when the call has ended.
    """

    runner: str
    environment: Mapping[str, str]
    directory: str
    path: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    inherited: Inherited = field(default_factory=Inherited)
    apply: Callable[..., object]
    policy: Policy = NOTHING
    snapshot: Snapshot | None = None
    imported: frozenset[str] = frozenset()
    precision: Mapping[str, object] = field(default_factory=dict)
    lingers: bool = False
    grace: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a call's process knows of itself and of its answer when it has done its work.

    Attributes:
        uses: what its frameworks say, by GPU UUID; empty where none was used.
        limited: the UUIDs of the GPUs on which it was told to take no more than so much.
        values: how many of the answer's parts are what the call gave; those after them are what it raised.
    """

    uses: tuple[GpuUse, ...] = ()
    limited: frozenset[str] = frozenset()
    values: int = 0
