"""An isolated call as data: what is asked of it, how its process is set up, and what came of it.

`run` carries a call out. An option of a call is a field of `Call`, and a line where it acts.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from tfgpu_magic.errors import PolicyError, TimedOut, Unpicklable
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.ground import units
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.ground.report import GpuUse
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.isolate.values import failure, pickling
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.policy import NOTHING, Policy

if TYPE_CHECKING:
    from typing_extensions import Self

WORK, SHOW, SHOWN, AGAIN, APART, LEAVE = "work", "show", "shown", "again", "apart", "leave"
"""Messages: the values of a call; a display and its number, and that it was shown; a request for the last message once
more; the same for the answer in self-contained pieces; the leave to end."""

ANSWER = "answer"
"""A message that ends a call: its outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is asked of each call of a function, or of a cell.

    Attributes:
        policy: the policy for its frameworks, in addition to the policy of this process.
        gpus: how many GPUs it gets; None is one, if there is one, and 0 hides them all.
        timeout: seconds that it may take, from its process's start; None is no limit.
        frameworks: whether the policy is for TensorFlow, or for all frameworks.
    """

    policy: Policy = NOTHING
    gpus: int | None = None
    timeout: float | None = None
    frameworks: Literal["tensorflow", "all"] = "tensorflow"

    @classmethod
    def checked(cls, *, policy: str | Policy | None = None, **options: Any) -> Self:
        """Return what is asked, as far as that can be checked without reading the GPUs.

        Args:
            policy: a policy or its words.
            options: further attributes; a time in seconds, or a text such as ``"10m"``.

        Raises:
            PolicyError: the policy, the number of GPUs or the time is not valid.
        """
        call = cls(policy=parser.parse(policy) if isinstance(policy, str) else policy or NOTHING, **options)
        if call.gpus is not None and (not isinstance(call.gpus, int) or isinstance(call.gpus, bool) or call.gpus < 0):
            text = "gpus={gpus} is no number of GPUs. Write how many each call gets: 1, or 0 to hide them."
            raise PolicyError(msg(text, gpus=repr(call.gpus)))
        return replace(call, timeout=None if call.timeout is None else units.parse_seconds(call.timeout))

    @classmethod
    def of_function(cls, **options: Any) -> Self:
        """Return what is asked for each call of a function, as `checked` does: it picks no GPUs by itself."""
        call = cls.checked(**options)
        if call.policy.choice is not None and call.policy.choice.picks:
            text = (
                "`{pick}` is not for isolated calls: each gets the GPUs with most memory left, as many as gpus= says."
            )
            raise PolicyError(msg(text, pick=call.policy.choice))
        return call

    @property
    def options(self) -> dict[str, Any]:
        """The options as `isolated` and `IsolatedExecutor` take them."""
        return {one.name: getattr(self, one.name) for one in fields(Call) if one.name != "frameworks"}

    @property
    def for_all(self) -> Policy:
        """What is asked of every framework."""
        return self.policy if self.frameworks == "all" else NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCall(Call):
    """What the line of an isolated cell asks.

    Attributes:
        inputs: the names to send; None for those that the cell reads.
        also: further names to send.
        outputs: the names to bring back.
        detach: whether the notebook goes on meanwhile.
        wait: seconds to wait for room if other processes hold too much; None does not wait.
        flags: the flags as they were written, without that.
    """

    inputs: tuple[str, ...] | None = None
    also: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    detach: bool = False
    wait: float | None = None
    flags: str = field(default="", compare=False)

    @property
    def above(self) -> str:
        """The line above the cell, without its policy."""
        return f"%%{'gpu' if self.frameworks == 'all' else 'tf_gpu'} isolate{self.flags}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellText:
    """What a cell's process needs of the notebook, sent as the first part of its work.

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
    unsent: Mapping[str, Message] = field(default_factory=dict)
    passing: frozenset[str] = frozenset()
    shell: Mapping[str, object]
    traceback: str = "Context"
    cells: Mapping[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a worker process is to be set up, before it unpickles any value of the call.

    Attributes:
        runner: the function that runs the call, ``module:name``; see `worker.Runner`.
        inheritance: calls by which it gets what a program inherits from the process that starts it.
        policy: the policy for its GPUs.
        frameworks: for which frameworks the policy is.
        other_frameworks: the policy for the frameworks beside TensorFlow, if `policy` is for TensorFlow alone.
        snapshot: the GPUs as they were when the policy was chosen; None to read them again.
        claim: the number of what it has in the ledger; None if it has nothing there.
    """

    runner: str
    inheritance: tuple[Callable[[], object], ...]
    policy: Policy = NOTHING
    frameworks: Literal["tensorflow", "all"] = "tensorflow"
    other_frameworks: Policy = NOTHING
    snapshot: Snapshot | None = None
    claim: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a call.

    Attributes:
        values: the parts of the pickles of what it returned, or of what a cell brings back; none if it has not run.
        failure: the parts of the pickle of what it raised; none if it raised nothing.
        note: a sentence for the user, which is shown once.
        uses: the memory that its process's frameworks report, by GPU UUID; empty if none was used.
        pools: its frameworks' pools.
        given: of a cell, the pickles in `values`: the names in each, and of how many parts it consists; the name of the
            cell's own value is empty.
        kept: of a cell, why something is not brought back, by name.
        stays: the names that a cell has bound and that stay behind.
        changed: the notebook's names whose values a cell has changed, and that are not brought back.
        display: how a cell's value is displayed there, data and metadata; None if it is not.
        in_pieces: in its process, returns the same in self-contained pieces, for a caller that cannot unpickle it as a
            whole; None if it is in one piece.
        seconds: how long it took.
        late: the timeout that it exceeded, in seconds, if it raised then; else None.
    """

    values: Sequence[memoryview] = ()
    failure: Sequence[memoryview] = ()
    note: Message | None = None
    uses: tuple[GpuUse, ...] = ()
    pools: tuple[Pool, ...] = ()
    given: tuple[tuple[tuple[str, ...], int], ...] = ()
    kept: Mapping[str, Message] = field(default_factory=dict)
    stays: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    display: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    in_pieces: Callable[[], Outcome] | None = None
    seconds: float = 0.0
    late: float | None = None

    @property
    def parts(self) -> list[bytes | memoryview]:
        """The outcome as the parts of a message."""
        head = replace(self, values=(), failure=(), in_pieces=None)
        return [pickle.dumps((head, len(self.values))), *self.values, *self.failure]

    @staticmethod
    def from_parts(parts: Sequence[memoryview], seconds: float) -> Outcome:
        """Return the outcome that a worker process has sent, `seconds` after its start."""
        head: Outcome
        head, count = pickle.loads(parts[0])  # noqa: S301  # from our own process
        return replace(head, values=parts[1 : 1 + count], failure=parts[1 + count :], seconds=seconds)

    @property
    def traceback(self) -> tuple[str, ...]:
        """The lines of what it raised, as IPython showed it there; none if no IPython ran."""
        return failure.described(self.failure).shown if self.failure else ()

    def error(self) -> BaseException | None:
        """Return what it raised, as its own type, or as the cause of `TimedOut`; None if it raised nothing."""
        raised = failure.load(self.failure) if self.failure else None
        if self.late is None:
            return raised
        late = timed_out(self.late)
        late.__cause__ = raised
        return late

    def value(self) -> Any:
        """Return what it returned.

        Raises:
            BaseException: what it raised.
            Unpicklable: what it returned cannot be unpickled in this process; the error's `value` tries it again.
        """
        raised = self.error()
        if raised is not None:
            failed = raised.__cause__ if self.late is not None else raised
            if self.values and isinstance(failed, Unpicklable):  # a model, of which only the weights have come
                failed.value = functools.partial(pickling.load, self.values, pickling.GuardedUnpickler)
            raise raised
        try:
            return pickling.load(self.values, pickling.GuardedUnpickler)
        except Unpicklable as error:
            error.value = self.value
            raise
        except Exception as error:  # a module that only the call has; any error of an object's own __setstate__
            text = (
                "What the call returned cannot be made again here ({error}). Once it can be, as when its module can be "
                "imported, value() of this error returns it."
            )
            refused = Unpicklable(msg(text, error=error))
            refused.value = self.value
            raise refused from error


def timed_out(seconds: float) -> TimedOut:
    """Return the error of a call that took longer than `seconds`."""
    text = msg("The call took longer than {seconds} s, and was ended.", seconds=f"{seconds:g}")
    return TimedOut(text, seconds=seconds)
