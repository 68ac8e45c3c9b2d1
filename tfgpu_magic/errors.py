"""Every error that tfgpu_magic raises on purpose; what each message says is written where it is raised.

TfGpuError
├── PolicyError       the words are not a policy
│   └── UnknownWord   one of them is no word
├── Refused           the policy is clear, and cannot be enforced here and now
│   └── TooLate       only a new process could enforce it
├── MonitorError      the driver's figures could not be had
├── Unpicklable       something cannot be sent to another process
├── WorkerDied        the process of an isolated call ended without an answer
├── TimedOut          an isolated call took longer than it may
├── Raised            an isolated call raised what has no type here
└── SimulatorError    the simulated GPU machine could not be built or reached
"""


class TfGpuError(Exception):
    """The root of the tree. Its text is one message for people: what is wrong, and what to do next."""


class PolicyError(TfGpuError, ValueError):
    """The words are not a policy: an unknown word, a size without a unit, a missing number."""


class UnknownWord(PolicyError):
    """A word is none of those that may stand in its place.

    Attributes:
        name: the word.
    """

    def __init__(self, text: str, name: str = "") -> None:
        super().__init__(text)
        self.name = name


class Refused(TfGpuError, RuntimeError):
    """The policy is understood and was not applied, not even in part.

    Attributes:
        crowded: whether an isolated call could have what is asked if others held less.
    """

    crowded = False


class TooLate(Refused):
    """The policy could be enforced in a new process, and not in this one, where TensorFlow or CUDA is running."""


class MonitorError(TfGpuError, RuntimeError):
    """The driver's figures could not be had."""


class Unpicklable(TfGpuError, TypeError):
    """Something cannot be sent between processes; its text names it."""


class WorkerDied(TfGpuError, RuntimeError):
    """The process of an isolated call ended without an answer; its text names the signal or the exit status."""


class TimedOut(TfGpuError, TimeoutError):
    """An isolated call took longer than it may, and was ended."""


class Raised(TfGpuError, RuntimeError):
    """An isolated call raised an exception whose type cannot be had here; what is raised is named as that type was."""


class SimulatorError(TfGpuError, RuntimeError):
    """The simulated GPU machine could not be built, started or reached."""
