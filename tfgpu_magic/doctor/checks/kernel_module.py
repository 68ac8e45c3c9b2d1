"""Which kernel module serves the driver: the open or the proprietary one, and whether it fits the library.

Source: the driver's README, chapter "The /proc file system interface".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine

PROPRIETARY = Outcome("proprietary", Severity.GOOD, "The proprietary one, {version}.")
OPEN = Outcome("open", Severity.NOTE, "The open one, {version}.")
DIFFERS = Outcome(
    "differs",
    Severity.FAULT,
    "It is of version {version}, and the driver's library of {library}: the driver was changed under the running "
    "system.",
    "Load the module anew, or reboot.",
)
LIBRARY_MISSING = Outcome(
    "library-missing",
    Severity.WARNING,
    "Version {version} is loaded, and the driver's library was not found.",
    "In a container, start it with its GPUs: docker run --gpus all ... Else install the driver's library of that "
    "version.",
)
UNKNOWN = Outcome("unknown", Severity.NOTE, "There is no {file} here, as on WSL: which one it is cannot be told.")
NONE = Outcome("none", Severity.NOTE, "None is loaded.")
SIMULATED = Outcome("simulated", Severity.GOOD, "None: the driver is simulated.")

FILE = "/proc/driver/nvidia/version"
_LINE = re.compile(r"NVRM version: +NVIDIA UNIX (?P<kind>.*?) Kernel Module(?: for \S+)? +(?P<version>[\d.]+)")


def check(machine: Machine) -> Iterator[Finding]:
    """Tell which it is."""
    if machine.simulated:
        yield SIMULATED()
        return
    driver = machine.driver
    found = _LINE.search(machine.text(FILE) or "")
    if found is None:
        yield UNKNOWN(file=FILE) if driver.works else NONE()
        return
    version, library = found["version"], driver.snapshot.driver if driver.snapshot else None
    if driver.snapshot is not None and driver.snapshot.absent:
        yield LIBRARY_MISSING(version=version)
    elif library is not None and library != version:
        yield DIFFERS(version=version, library=library)
    else:
        yield (OPEN if "Open" in found["kind"] else PROPRIETARY)(version=version)
