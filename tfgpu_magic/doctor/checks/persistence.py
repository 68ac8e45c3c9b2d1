"""Whether the driver stays awake for GPUs that nobody uses.

Source: NVIDIA's documentation of driver persistence.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine

ON = Outcome("on", Severity.GOOD, "On: the driver is awake for the first program.")
OFF = Outcome(
    "off",
    Severity.NOTE,
    "Off for {gpus}: while nothing uses a GPU the driver sleeps, and its start takes the next program 1 to 3 s a GPU.",
    "Where GPUs need not sleep to save power, as root:\n  nvidia-smi -pm 1",
)


def check(machine: Machine) -> Iterator[Finding]:
    """Tell for which GPUs it is off; nothing where the driver does not tell."""
    modes = machine.driver.persistence
    off = [label for label, on in modes.items() if not on]
    if off:
        yield OFF(gpus=off)
    elif modes:
        yield ON()
