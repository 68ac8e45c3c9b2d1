"""Every error that tfgpu_magic raises on purpose; what each message says is written where it is raised.

TfGpuError
├── PolicyError       the words are not a policy
├── Refused           the policy is clear, and cannot be enforced here and now
│   └── TooLate       only a new process could enforce it
├── MonitorError      the driver's figures could not be had
├── Unpicklable       something cannot be sent to another process
└── SimulatorError    the simulated GPU machine could not be built or reached
"""


class TfGpuError(Exception):
    """The root of the tree. Its text is one message for people: what is wrong, and what to do next."""


class PolicyError(TfGpuError, ValueError):
    """The words are not a policy: an unknown word, a size without a unit, a missing number."""


class Refused(TfGpuError, RuntimeError):
    """The policy is understood and was not applied, not even in part."""


class TooLate(Refused):
    """The policy could be enforced in a new process, and not in this one, where TensorFlow or CUDA is running."""


class MonitorError(TfGpuError, RuntimeError):
    """The driver's figures could not be had."""


class Unpicklable(TfGpuError, TypeError):
    """Something cannot be sent between processes; its text names it."""


class SimulatorError(TfGpuError, RuntimeError):
    """The simulated GPU machine could not be built, started or reached."""
