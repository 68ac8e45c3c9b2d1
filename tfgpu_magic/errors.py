"""The tree of the errors that tfgpu_magic raises on purpose; each message is written where it is raised.

TfGpuError
├── PolicyError       the words are not a policy
│   └── UnknownWord   one of them is no word
├── Refused           the policy is clear, and cannot be enforced here and now
│   └── TooLate       only a new process could enforce it
├── MonitorError      the driver's figures could not be had
├── Unpicklable       something cannot be sent to another process
├── WorkerDied        the process of an isolated call ended without an answer
├── TimedOut          an isolated call took longer than it may
├── Raised            an isolated call raised an exception whose class cannot be imported here
└── SimulatorError    the simulated GPU machine could not be built or reached
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.message import Line, Message, join_lines, msg, paragraph

Room: TypeAlias = Mapping[str, int | None]
"""GPUs on which there could be room, by their `allocation.key`, with the bytes that are limited there, or None."""
NOT_APPLIED = msg("Not applied.")
NOT_STARTED = msg("Not started.")
"""The verdict on an isolated call that cannot have what it needs."""


class TfGpuError(Exception):
    """The root of the tree. Its text is one message for the user: what is wrong, and what to do next.

    Args:
        message: the message, or its text where no front end words any of it.

    Attributes:
        verdict: what came of it, a sentence with which the text begins; None if the reason implies it.
        place: the machine on which it was raised, if by an isolated call on a cluster; else empty.
    """

    verdict: Message | None = None
    place = ""

    def __init__(self, message: Message | str = "") -> None:
        super().__init__(message)

    @property
    def reason(self) -> Message:
        """What is wrong, and what to do next."""
        said = self.args[0] if self.args else ""
        return said if isinstance(said, Message) else msg("{text}", text=said)

    @property
    def message(self) -> Message:
        """All that is said of it: the verdict, the reason, and the machine."""
        place = f"This was on {self.place}." if self.place else ""
        return join_lines((paragraph((self.verdict, self.reason)), place))

    def __str__(self) -> str:
        return str(self.message)

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: the lines of the user's code that led here, and none of ours behind them."""
        behind = {"tfgpu_magic", *sys.stdlib_module_names}
        last = trace = self.__traceback__
        while trace is not None:
            last = last if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in behind else trace
            trace = trace.tb_next
        if last is not None:
            last.tb_next = None
        self.__suppress_context__ = True  # what it was raised for is in its text
        lines: list[str] = process_kind.shell().InteractiveTB.structured_traceback(type(self), self, self.__traceback__)
        return lines


class PolicyError(TfGpuError, ValueError):
    """A text that is not a policy: it has an unknown word, a size without a unit, a missing number."""


class UnknownWord(PolicyError):
    """A word that may not stand in its place, because it is unknown there.

    Attributes:
        name: the word.
    """

    def __init__(self, message: Message | str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class Refused(TfGpuError, RuntimeError):
    """A policy that is understood and was not applied, not even in part.

    Attributes:
        retryable: the GPUs on which it could be had if other processes held less, so that it may be worth waiting.
    """

    def __init__(
        self, reason: Message | str = "", *, verdict: Message | None = NOT_APPLIED, retryable: Room | None = None
    ) -> None:
        super().__init__(reason)
        self.verdict, self.retryable = verdict, retryable or {}

    @property
    def beginning(self) -> Message:
        """The verdict and the reason alone."""
        return paragraph((self.verdict, self.reason.without_next))

    @property
    def tries(self) -> Sequence[Line]:
        """The lines that can be run in place of the one that was refused, the nearest first."""
        return self.reason.tries


class TooLate(Refused):
    """A policy that a new process could enforce, but not this one, where TensorFlow or CUDA is running."""


class MonitorError(TfGpuError, RuntimeError):
    """A failure to get the driver's figures."""


class Unpicklable(TfGpuError, TypeError):
    """An object that cannot be sent between processes; the text names it.

    Attributes:
        what: what cannot be sent, as people call it: ``train``, ``argument 2 of train``, a cell's name; empty where it
            has none.
        value: a function that returns what has come home all the same, or tries again to return what a call returned,
            once its module can be imported here; None if there is nothing to try.
    """

    __slots__ = ("_value",)  # no part of a pickle of this error

    def __init__(self, message: Message | str = "", *, what: str = "") -> None:
        super().__init__(message)
        self.what = what

    @property
    def value(self) -> Callable[[], Any] | None:
        """The function that tries again; None in an error that came as a pickle, which may not be initialised."""
        return getattr(self, "_value", None)

    @value.setter
    def value(self, value: Callable[[], Any] | None) -> None:
        self._value = value


class WorkerDied(TfGpuError, RuntimeError):
    """An isolated call whose process ended without an answer; the text names the signal or the exit status.

    Attributes:
        status: how it ended, as `subprocess` has it: its exit status, or a signal's number, negative; None where it has
            not ended, was never started, or its status is unknown.
        memory: whether the kernel's out-of-memory killer was at work meanwhile, and most likely killed it; None where
            that is not known.
        stopped: whether it was stopped on purpose: by `stop` of its future, or with all calls of its executor.

    Examples:
        ``except WorkerDied as error: again = error.memory or error.signal == signal.SIGSEGV``
    """

    def __init__(
        self,
        message: Message | str = "",
        *,
        status: int | None = None,
        memory: bool | None = None,
        stopped: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.memory = memory
        self.stopped = stopped

    @property
    def signal(self) -> int | None:
        """The number of the signal that ended the process; None where none did."""
        return None if self.status is None or self.status >= 0 else -self.status


class TimedOut(TfGpuError, TimeoutError):
    """An isolated call that exceeded its timeout, and was ended.

    Attributes:
        seconds: the timeout; None where it is unknown.
    """

    def __init__(self, message: Message | str = "", *, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class Raised(TfGpuError, RuntimeError):
    """The stand-in for an exception whose class cannot be imported here; its own class has that class's name."""


class SimulatorError(TfGpuError, RuntimeError):
    """A failure to build, start or reach the simulated GPU machine."""
