"""`tfgpu doctor`: the truth about this machine, finding by finding, with what to do next."""

from __future__ import annotations

import os

from tfgpu_magic.command.dispatch import is_drawn_on
from tfgpu_magic.doctor import finding as doctor
from tfgpu_magic.doctor.checks.table import CHECKS, run_check
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.ground.message import Message, Severity
from tfgpu_magic.policy.word import ParsedLine

FAULTY = 1
"""The exit status if there is a fault."""

MORE = """\
No setting is changed. The driver, CUDA, TensorFlow and IPython's configuration
are read in processes of their own, which are given up when they take too long;
for an instant, one of them takes a CUDA context of a GPU on which 2 GiB are free.

The JSON names this host, and no process and no notebook; read it before you
send it. Of the environment it has only the variables that it lists, and ~ for
the home directory. Sizes are bytes.

The exit status is 1 where there is a fault."""


def run(line: ParsedLine) -> int:
    """Do every check, and print what each finds as soon as it is done."""
    json = "--json" in line.flags
    machine = ThisMachine(quick="--quick" in line.flags)
    found: list[Message] = []
    live = not json and is_drawn_on()
    for title, check in CHECKS.items():
        if live:
            print(f"{'':10}{title}…", end="", flush=True)
        findings = run_check(check, machine)
        found += findings
        if live:
            print("\r\x1b[K", end="")
        if findings and not json:
            print(doctor.text(title, findings, coloured=live and "NO_COLOR" not in os.environ), flush=True)
    print(doctor.as_json(found) if json else f"\n{doctor.summary(found)}")
    return FAULTY if any(finding.severity is Severity.FAULT for finding in found) else 0
