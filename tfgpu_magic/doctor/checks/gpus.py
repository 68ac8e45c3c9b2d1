"""The GPUs and MIG instances as the driver lists them."""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine

WORKS = Outcome("works", Severity.GOOD, "{gpu}: {name}, {free_bytes} of {total_bytes} free.")
LOST = Outcome(
    "lost",
    Severity.FAULT,
    "{gpu}: {name}. {error}.",
    "What ran on it has failed. The kernel says why; a reset or a reboot brings it back:\n"
    "  sudo dmesg | grep -i -e nvrm -e xid",
)
TROUBLE = Outcome(
    "trouble", Severity.WARNING, "{gpu}: {name}. {error}.", "See what this says:\n  nvidia-smi -q -i {gpu}"
)
MIG = Outcome(
    "mig",
    Severity.NOTE,
    "{gpu}: {name}, in MIG mode. Its instances: {instances}. A program sees one of them at most, and nothing of the "
    "whole GPU.",
    "To choose one, in a notebook or for a program:\n"
    "  %tf_gpu visible {first}\n"
    '  tfgpu run "visible {first}" -- program.py',
)
MIG_EMPTY = Outcome(
    "mig-empty",
    Severity.FAULT,
    "{gpu}: {name}, in MIG mode and without an instance: no program can use it.",
    "As root, list what it can be cut into, or end MIG mode:\n"
    "  nvidia-smi mig -i {gpu} -lgip\n"
    "  nvidia-smi -i {gpu} -mig 0",
)
REMARK = Outcome("remark", Severity.NOTE, "{remark}")


def check(machine: Machine) -> Iterator[Finding]:
    """Tell the state of each."""
    driver = machine.driver
    if driver.snapshot is None or not driver.works:
        return
    for gpu in driver.gpus:
        name = gpu.name or "unknown"
        if gpu.lost:
            yield LOST(gpu=gpu.label, name=name, error=gpu.error)
        elif gpu.error:
            yield TROUBLE(gpu=gpu.label, name=name, error=gpu.error)
        elif gpu.mig:
            instances = [one.label for one in driver.gpus if one.index == gpu.index and one.instance is not None]
            if instances:
                yield MIG(gpu=gpu.label, name=name, instances=instances, first=instances[0])
            else:
                yield MIG_EMPTY(gpu=gpu.label, name=name)
        else:
            capability = None if gpu.capability is None else "{}.{}".format(*gpu.capability)
            yield WORKS(
                gpu=gpu.label, name=name, total_bytes=gpu.total, free_bytes=gpu.free, capability=capability,
                unified=gpu.unified,
            )  # fmt: skip
    for note in driver.snapshot.notes:
        yield REMARK(remark=note)
