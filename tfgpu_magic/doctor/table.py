"""Every check in the order in which `tfgpu doctor` reports on it; each is a module of `checks`."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tfgpu_magic.doctor import checks
from tfgpu_magic.doctor.checks import (
    board,
    container,
    cuda,
    driver,
    environment,
    frameworks,
    gpus,
    host_memory,
    ipython,
    jupyter,
    kernel_module,
    parking,
    persistence,
    pids,
    policy,
    system,
    tensorflow,
)
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine
from tfgpu_magic.monitor.bounded import within

LONGEST = 180.0
"""Seconds that a check may take, with all processes that it waits for; a home on a network may hang, too."""

BROKEN = Outcome("broken", Severity.WARNING, "This could not be looked at: {why}", "Please tell us, with this report.")
HANGS = Outcome("hangs", Severity.WARNING, "This could not be looked at within {seconds} s.")


class _Module(Protocol):
    """The part of a check's module that is needed here."""

    __name__: str

    def check(self, machine: Machine) -> Iterable[Finding]: ...


@dataclass(frozen=True, slots=True)
class Check:
    """A check.

    Attributes:
        title: what it is about, for people.
        module: its module.
    """

    title: str
    module: _Module

    @property
    def name(self) -> str:
        """Its name in reports for programs, which stays what it is: ``kernel_module``."""
        return self.module.__name__.removeprefix(f"{checks.__name__}.")

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """All that it may find."""
        return tuple(value for value in vars(self.module).values() if isinstance(value, Outcome))


CHECKS = (
    Check("This", system),
    Check("Driver", driver),
    Check("Kernel module", kernel_module),
    Check("GPU", gpus),
    Check("Persistence", persistence),
    Check("CUDA", cuda),
    Check("Pids", pids),
    Check("Container", container),
    Check("Memory", host_memory),
    Check("TensorFlow", tensorflow),
    Check("PyTorch, JAX", frameworks),
    Check("Parking", parking),
    Check("IPython", ipython),
    Check("Jupyter", jupyter),
    Check("Board", board),
    Check("Policy", policy),
    Check("Environment", environment),
)


def examine(check: Check, machine: Machine) -> list[Finding]:
    """Do a check, whatever it meets, and return what it found, with home directories written as ``~``."""
    try:
        found = within(LONGEST, lambda: list(check.module.check(machine)), [])  # another one that hangs is no reason
    except Exception as error:  # the others are to be done all the same
        found = [BROKEN(why=f"{type(error).__name__}: {error}".partition("\n")[0])]
    found = [HANGS(seconds=LONGEST)] if found is None else found
    return [one.without(tuple(_homes())) for one in found]


def _homes() -> Iterator[str]:
    """Give this user's home directories, the longest path first."""
    found = {os.environ.get("HOME", "")}
    with suppress(KeyError):  # a user id without a name has no home
        found.add(pwd.getpwuid(os.geteuid()).pw_dir)
    yield from sorted((home.rstrip("/") for home in found if home.strip("/")), key=len, reverse=True)
