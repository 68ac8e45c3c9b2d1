"""Whether the driver answers, which kernel module serves it, and what it says of the GPUs and MIG instances."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfgpu_magic import probe
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine
from tfgpu_magic.model import phrases
from tfgpu_magic.monitor.driver.sources import search_path

ANSWERS = Outcome("driver.answers", Severity.GOOD, "NVIDIA's driver {version} answered in {seconds} s.")
SIMULATED = Outcome(
    "driver.simulated",
    Severity.NOTE,
    "These GPUs are simulated, for trying and for tests: what they compute means nothing.",
)
ABSENT = Outcome("driver.absent", Severity.FAULT, "{error}", f"{phrases.TRY}\n  {phrases.TRY_COMMAND}")
HANGS = Outcome(
    "driver.hangs",
    Severity.FAULT,
    "NVIDIA's driver did not answer within {seconds} s: a call hangs in it. What would hang with it was not asked.",
    "See whether nvidia-smi hangs too, and what the kernel says of it; a reboot may be needed:\n"
    "  sudo dmesg | grep -i -e nvrm -e xid",
)
FAILS = Outcome("driver.fails", Severity.FAULT, "{error}")
ENDED = Outcome(
    "driver.ended",
    Severity.FAULT,
    "The process that asked NVIDIA's driver ended without an answer: {why}",
    "See whether this does, too:\n  nvidia-smi",
)


def driver(machine: Machine) -> Iterator[Finding]:
    """Tell whether the driver lists its GPUs, or why it does not."""
    try:
        search_path()
    except ImportError as error:
        yield FAILS(error=str(error))
        return
    driver = machine.driver
    if driver.answer.late:
        yield HANGS(seconds=probe.PATIENCE)
    elif driver.snapshot is None:
        yield ENDED(why=driver.answer.why)
    elif driver.snapshot.error is not None:
        yield (ABSENT if driver.snapshot.absent else FAILS)(error=driver.snapshot.error)
    else:
        yield ANSWERS(version=driver.snapshot.driver, seconds=round(driver.answer.facts["took"], 3))
        if machine.simulated:
            yield SIMULATED()


# --- the kernel module ---

MODULE_PROPRIETARY = Outcome("kernel_module.proprietary", Severity.GOOD, "The proprietary one, {version}.")
MODULE_OPEN = Outcome("kernel_module.open", Severity.NOTE, "The open one, {version}.")
MODULE_DIFFERS = Outcome(
    "kernel_module.differs",
    Severity.FAULT,
    "It is of version {version}, and the driver's library of {library}: the driver was changed under the running "
    "system.",
    "Load the module anew, or reboot.",
)
MODULE_LIBRARY_MISSING = Outcome(
    "kernel_module.library-missing",
    Severity.WARNING,
    "Version {version} is loaded, and the driver's library was not found.",
    "In a container, start it with its GPUs: docker run --gpus all ... Else install the driver's library of that "
    "version.",
)
MODULE_UNKNOWN = Outcome(
    "kernel_module.unknown", Severity.NOTE, "There is no {file} here: none is loaded, or it cannot be told, as on WSL."
)
MODULE_SIMULATED = Outcome("kernel_module.simulated", Severity.GOOD, "None: the driver is simulated.")

FILE = "/proc/driver/nvidia/version"
_LINE = re.compile(r"NVRM version: +NVIDIA UNIX (?P<kind>.*?) Kernel Module(?: for \S+)? +(?P<version>[\d.]+)")


def kernel_module(machine: Machine) -> Iterator[Finding]:
    """Tell which it is. Source: the driver's README, chapter "The /proc file system interface"."""
    if machine.simulated:
        yield MODULE_SIMULATED()
        return
    driver = machine.driver
    found = _LINE.search(machine.text(FILE) or "")
    if found is None:
        yield MODULE_UNKNOWN(file=FILE)
        return
    version, library = found["version"], driver.snapshot.driver if driver.snapshot else None
    if driver.snapshot is not None and driver.snapshot.absent:
        yield MODULE_LIBRARY_MISSING(version=version)
    elif library is not None and library != version:
        yield MODULE_DIFFERS(version=version, library=library)
    else:
        yield (MODULE_OPEN if "Open" in found["kind"] else MODULE_PROPRIETARY)(version=version)


# --- GPUs ---

GPU_WORKS = Outcome("gpus.works", Severity.GOOD, "{gpu}: {name}, {free_bytes} of {total_bytes} free.")
GPU_LOST = Outcome(
    "gpus.lost",
    Severity.FAULT,
    "{gpu}: {name}. {error}.",
    "What ran on it has failed. The kernel says why; a reset or a reboot brings it back:\n"
    "  sudo dmesg | grep -i -e nvrm -e xid",
)
GPU_TROUBLE = Outcome(
    "gpus.trouble", Severity.WARNING, "{gpu}: {name}. {error}.", "See what this says:\n  nvidia-smi -q -i {gpu}"
)
GPU_MIG = Outcome(
    "gpus.mig",
    Severity.NOTE,
    "{gpu}: {name}, in MIG mode. Its instances: {instances}. A program sees one of them at most, and nothing of the "
    "whole GPU.",
    "To choose one, in a notebook or for a program:\n"
    "  %tf_gpu visible {first}\n"
    '  tfgpu run "visible {first}" -- program.py',
)
GPU_MIG_EMPTY = Outcome(
    "gpus.mig-empty",
    Severity.FAULT,
    "{gpu}: {name}, in MIG mode and without an instance: no program can use it.",
    "As root, list what it can be cut into, or end MIG mode:\n"
    "  nvidia-smi mig -i {gpu} -lgip\n"
    "  nvidia-smi -i {gpu} -mig 0",
)
GPU_REMARK = Outcome("gpus.remark", Severity.NOTE, "{remark}")


def gpus(machine: Machine) -> Iterator[Finding]:
    """Tell the state of each."""
    driver = machine.driver
    if driver.snapshot is None or not driver.works:
        return
    for gpu in driver.gpus:
        of_gpu = {"gpu": gpu.label, "name": gpu.name or "unknown"}
        if gpu.error:
            yield (GPU_LOST if gpu.lost else GPU_TROUBLE)(**of_gpu, error=gpu.error)
        elif gpu.mig:
            instances = [one.label for one in driver.gpus if one.index == gpu.index and one.instance is not None]
            yield GPU_MIG(**of_gpu, instances=instances, first=instances[0]) if instances else GPU_MIG_EMPTY(**of_gpu)
        else:
            yield GPU_WORKS(**of_gpu, total_bytes=gpu.total, free_bytes=gpu.free)
    for note in driver.snapshot.notes:
        yield GPU_REMARK(remark=note)
