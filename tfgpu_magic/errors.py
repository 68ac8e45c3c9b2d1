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

from collections.abc import Callable, Sequence
from typing import Any

from tfgpu_magic.model.said import in_a_row, say

NOT_APPLIED = say("Not applied.")
NOT_STARTED = say("Not started.")
"""The verdict on an isolated call that cannot have what it needs."""


class TfGpuError(Exception):
    """The root of the tree. Its text is one message for the user: what is wrong, and what to do next.

    Attributes:
        place: the machine on which it was raised, if by an isolated call on a cluster; else empty.
    """

    place = ""

    def __str__(self) -> str:
        return f"{self.text()}\nThis was on {self.place}." if self.place else self.text()

    def text(self) -> str:
        """Return the message without the machine."""
        return super().__str__()


class PolicyError(TfGpuError, ValueError):
    """A text that is not a policy: it has an unknown word, a size without a unit, a missing number."""


class UnknownWord(PolicyError):
    """A word that may not stand in its place, because it is unknown there.

    Attributes:
        name: the word.
    """

    def __init__(self, text: str, name: str = "") -> None:
        super().__init__(text)
        self.name = name


class Refused(TfGpuError, RuntimeError):
    """A policy that is understood and was not applied, not even in part.

    Attributes:
        reason: why, in one paragraph.
        verdict: what came of it, a sentence with which the text begins; empty where the reason implies it.
        more: what else the text says before the ways out.
        lead: the text that introduces the ways out.
        ways: what can be asked instead, the words of a line of `%tf_gpu` each, the nearest first.
        crowded: the GPUs, by their `allocation.key`, on which it could be had if other processes held less, so that it
            may be worth waiting.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        verdict: str = NOT_APPLIED,
        more: str = "",
        lead: str = "",
        ways: Sequence[str] = (),
        crowded: Sequence[str] = (),
    ) -> None:
        super().__init__(reason)
        self.reason, self.verdict, self.more = reason, verdict, more
        self.lead, self.ways, self.crowded = lead, tuple(ways), crowded

    @property
    def beginning(self) -> str:
        """The verdict and the reason, with which the text begins."""
        return in_a_row(filter(None, (self.verdict, self.reason)))

    def rest(self, magic: str = "%tf_gpu") -> str:
        """Return what follows the reason, with the ways out as lines of this magic."""
        ways = "\n  ".join(f"{magic} {way}" for way in self.ways)
        return f"{self.more}{self.lead if ways else ''}{ways}"

    def text(self, magic: str = "%tf_gpu") -> str:
        """Return the text with the ways out as lines of this magic, such as ``%%tf_gpu isolate``."""
        return f"{self.beginning}{self.rest(magic)}"


class TooLate(Refused):
    """A policy that a new process could enforce, but not this one, where TensorFlow or CUDA is running.

    Attributes:
        restarts: the words of the line in its text that restarts the kernel and applies the policy; empty without one.
    """

    restarts = ""


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

    def __init__(self, message: str = "", *, what: str = "") -> None:
        super().__init__(message)
        self.what = what

    @property
    def value(self) -> Callable[[], Any] | None:
        """Have what tries again; an error that came as a pickle has none, and may not have been initialised."""
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
        self, message: str = "", *, status: int | None = None, memory: bool | None = None, stopped: bool = False
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

    def __init__(self, message: str = "", *, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class Raised(TfGpuError, RuntimeError):
    """The stand-in for an exception whose class cannot be imported here; its own class has that class's name."""


class SimulatorError(TfGpuError, RuntimeError):
    """A failure to build, start or reach the simulated GPU machine."""
