"""What is sent with a call besides its values, and what comes back besides its result: plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.ground.report import GpuUse
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.policy.policy import NOTHING, Policy

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
        caller: the word for what calls, as `host.here` has it.
        directory: the working directory.
        inheritance: calls by which it gets whatever else a program inherits, as far as it may.
        path: where modules are imported from.
        arguments: the program's command line.
        key: the key by which it authenticates to managers of `multiprocessing`; None where that is not imported.
        package: the package that the program's main module is in, for its relative imports.
        file: the main module's file; None in a notebook.
        module: the main module's name where the program was run by it.
        keras: Keras' settings for a whole process, mixed precision as its configuration; none without Keras.
        apply: sets TensorFlow up, given a policy and a function that returns the GPUs; imported there by its name.
        policy: the policy for its GPUs.
        frameworks: for which frameworks the policy is, as `apply` takes it.
        others: what the frameworks beside TensorFlow are asked, where the policy is for TensorFlow alone.
        snapshot: the GPUs as they were when the policy was chosen; None to read them anew.
    """

    runner: str
    environment: Mapping[str, str]
    caller: str
    directory: str
    inheritance: tuple[Callable[[], object], ...]
    path: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    key: bytes | None = field(default=None, repr=False)
    package: str | None = None
    file: str | None = None
    module: str | None = None
    keras: Mapping[str, Any] = field(default_factory=dict)
    apply: Callable[..., object]
    policy: Policy = NOTHING
    frameworks: str = "tensorflow"
    others: Policy = NOTHING
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """What a worker process reports of itself and of its answer when it has done its work.

    Attributes:
        uses: the memory that its frameworks report, by GPU UUID; empty where none was used.
        pools: its frameworks' pools.
        values: how many of the answer's parts are what the call returned; those after them are what it raised.
        note: a sentence for the user, which is shown once.
    """

    uses: tuple[GpuUse, ...] = ()
    pools: tuple[Pool, ...] = ()
    values: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """The settings of a cell for its process.

    Attributes:
        source: its text.
        number: its number in the notebook.
        outputs: the names to bring back.
        sent: the names that are sent, and of how many parts each consists.
        surely: the names that the cell cannot do without.
        unsent: why names that it may read could not be sent, by name.
        passing: the names that nothing but its imports and loops bind.
        shell: traits of the notebook's shell that the cell's shell takes over.
        traceback: the mode of its tracebacks.
        cells: the notebook's cells, for tracebacks that go through their functions: number and text, by the file name
            that the compiler has for them.
    """

    source: str
    number: int
    outputs: tuple[str, ...] = ()
    sent: Mapping[str, int] = field(default_factory=dict)
    surely: frozenset[str] = frozenset()
    unsent: Mapping[str, str] = field(default_factory=dict)
    passing: frozenset[str] = frozenset()
    shell: Mapping[str, object]
    traceback: str = "Context"
    cells: Mapping[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """The facts about a cell that has ended.

    Attributes:
        stays: names that it has bound and that stay behind.
        kept: why something is not brought back, by name; the value's name is empty.
        shown: how its value is displayed there, data and metadata; None if it is not.
        given: the pickles of what is brought back: the names in each, and how many of the parts after this one it has;
            the value's name is empty.
        changed: the notebook's names whose values it has changed, and that are not brought back.
    """

    stays: tuple[str, ...] = ()
    kept: Mapping[str, str]
    shown: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    given: tuple[tuple[tuple[str, ...], int], ...] = ()
    changed: tuple[str, ...] = ()
