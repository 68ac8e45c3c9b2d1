"""Whether the driver answers."""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine
from tfgpu_magic.monitor.libraries import search_path
from tfgpu_magic.views import phrases

ANSWERS = Outcome("answers", Severity.GOOD, "NVIDIA's driver {version} answered in {seconds} s.")
SIMULATED = Outcome(
    "simulated", Severity.NOTE, "These GPUs are simulated, for trying and for tests: what they compute means nothing."
)
ABSENT = Outcome("absent", Severity.FAULT, "{error}", f"{phrases.TRY}\n  {phrases.TRY_COMMAND}")
HANGS = Outcome(
    "hangs",
    Severity.FAULT,
    "NVIDIA's driver did not answer within {seconds} s: a call hangs in it. What would hang with it was not asked.",
    "See whether nvidia-smi hangs too, and what the kernel says of it; a reboot may be needed:\n"
    "  sudo dmesg | grep -i -e nvrm -e xid",
)
FAILS = Outcome("fails", Severity.FAULT, "{error}")
ENDED = Outcome(
    "ended",
    Severity.FAULT,
    "The process that asked NVIDIA's driver ended without an answer: {why}",
    "See whether this does, too:\n  nvidia-smi",
)


def check(machine: Machine) -> Iterator[Finding]:
    """Tell whether the driver lists its GPUs, or why it does not."""
    try:
        search_path()
    except ImportError as error:
        yield FAILS(error=str(error))
        return
    driver = machine.driver
    if driver.answer.late:
        yield HANGS(seconds=driver.answer.seconds)
    elif driver.snapshot is None:
        yield ENDED(why=driver.answer.why)
    elif driver.snapshot.error is not None:
        yield (ABSENT if driver.snapshot.absent else FAILS)(error=driver.snapshot.error)
    else:
        yield ANSWERS(version=driver.snapshot.driver, seconds=round(driver.answer.facts["took"], 3))
        if machine.simulated:
            yield SIMULATED()
