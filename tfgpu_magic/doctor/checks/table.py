"""The checks by their titles, in the order in which `tfgpu doctor` reports on them; the modules of `checks` do them."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeAlias

from tfgpu_magic.doctor.checks import board, driver, host, idle, limits, policy, tensorflow
from tfgpu_magic.doctor.finding import hide_homes, outcome
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.ground.bounded import run_within
from tfgpu_magic.ground.message import Message, Severity

LONGEST = 180.0
"""Seconds that a check may take, with all processes that it waits for; a home on a network may hang, too."""

BROKEN = outcome(
    "doctor.broken", Severity.WARNING, "This could not be looked at: {why}", "Please tell us, with this report."
)

Check: TypeAlias = Callable[[ThisMachine], Iterable[Message]]

CHECKS: dict[str, Check] = {
    "This": host.system,
    "Driver": driver.driver,
    "Kernel module": driver.kernel_module,
    "GPU": driver.gpus,
    "CUDA": driver.cuda,
    "Pids": driver.pids,
    "Memory": host.host_memory,
    "TensorFlow": tensorflow.tensorflow,
    "Idle notebooks": idle.idle,
    "Board": board.board,
    "Policy": policy.policy,
    "Limits": limits.limits,
    "Environment": host.environment,
}


def declared_outcomes(check: Check) -> Iterator[Message]:
    """Yield all outcomes that a check may find: its module declares them, one by one or in a table."""
    for value in vars(sys.modules[check.__module__]).values():
        for one in value.values() if isinstance(value, dict) else (value,):
            if isinstance(one, Message) and one.name.startswith(f"{check.__name__}."):
                yield one


def run_check(check: Check, machine: ThisMachine) -> list[Message]:
    """Do a check, whatever it meets, and return what it found, with home directories written as ``~``."""
    try:
        found = run_within(LONGEST, lambda: list(check(machine)), [])  # another one that hangs is no reason
    except Exception as error:  # the others are to be done all the same
        found = [BROKEN(why=f"{type(error).__name__}: {error}".partition("\n")[0])]
    found = [BROKEN(why=f"it took more than {LONGEST:g} s")] if found is None else found
    return [hide_homes(one, tuple(_homes())) for one in found]


def _homes() -> Iterator[str]:
    """Yield this user's home directories, the longest path first."""
    found = {os.environ.get("HOME", "")}
    with suppress(KeyError):  # a user id without a name has no home
        found.add(pwd.getpwuid(os.geteuid()).pw_dir)
    yield from sorted((home.rstrip("/") for home in found if home.strip("/")), key=len, reverse=True)
