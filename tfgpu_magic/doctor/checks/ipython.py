"""Which IPython and ipykernel are installed."""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.installed import numbers, version_of
from tfgpu_magic.doctor.machine import Machine

INSTALLED = Outcome("installed", Severity.GOOD, "IPython {version}, ipykernel {ipykernel}.")
NO_KERNEL = Outcome(
    "no-kernel",
    Severity.NOTE,
    "IPython {version}, and no ipykernel: notebooks cannot run in this environment.",
    "Where they should:\n  pip install ipykernel",
)
OLD = Outcome(
    "old",
    Severity.FAULT,
    "IPython {version} is older than 7.34, the oldest that the magics run on.",
    "To have a newer one:\n  pip install --upgrade ipython",
)
ABSENT = Outcome(
    "absent", Severity.FAULT, "It is not installed here, and the magics need it.", "Install it:\n  pip install ipython"
)

_OLDEST = (7, 34)


def check(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  # this environment is asked
    """Tell the versions."""
    version, ipykernel = version_of("IPython"), version_of("ipykernel")
    if version is None:
        yield ABSENT()
    elif numbers(version) < _OLDEST:
        yield OLD(version=version)
    elif ipykernel is None:
        yield NO_KERNEL(version=version)
    else:
        yield INSTALLED(version=version, ipykernel=ipykernel)
