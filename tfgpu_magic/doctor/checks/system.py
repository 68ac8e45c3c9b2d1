"""What this is: the versions of this package, of Python and of Linux."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

from tfgpu_magic._version import __version__
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine

FOUND = Outcome(
    "found", Severity.GOOD, "tfgpu_magic {version}, Python {python}, Linux {kernel} on {processor}, {cpus} CPUs."
)


def check(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  # this interpreter is asked
    """Give the versions."""
    yield FOUND(
        version=__version__,
        python=platform.python_version(),
        kernel=platform.release(),
        processor=platform.machine(),
        cpus=os.cpu_count(),
    )
