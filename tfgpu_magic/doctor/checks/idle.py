"""The doctor's check of idle notebooks: after which hours anything is done to this user's."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tfgpu_magic import policy
from tfgpu_magic.doctor.finding import outcome
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.message import Message, Severity
from tfgpu_magic.lab import admin_file
from tfgpu_magic.lab.idle_policy import Rule, rule_of

HOLDS = outcome(
    "idle.holds",
    Severity.GOOD,
    "By {file}, a notebook that holds GPU memory without use is {steps}. A notebook in use is left alone.",
)
AVOIDABLE = outcome(
    "idle.avoidable",
    Severity.WARNING,
    "A file of the user's own can turn these steps off in this server, by disabling its extension.",
    "An administrator can have servers pass over such files, in jupyterhub_config.py:\n"
    "  c.Spawner.disable_user_config = True",
)
NOT_PARKED = outcome(
    "idle.not_parked",
    Severity.WARNING,
    "{why}",
    'Do nothing if that is meant. Otherwise write `policy = "growth --release"` and no ceiling in {file}.',
)
FLAWED = outcome(
    "idle.flawed",
    Severity.FAULT,
    "Idle notebooks are left alone: {flaw}",
    "Mend {file}, and run `tfgpu doctor` again.",
)

_WORDS = {"notify": "reported to its owner", "park": "parked, if it can be,", "stop": "shut down"}


def idle(machine: ThisMachine) -> Iterator[Message]:
    """Yield what the administrator's file says of idle notebooks."""
    try:
        table = admin_file.table("idle")
        rule = Rule() if table is None else rule_of(table, admin_file.own_groups())
    except PolicyError as error:
        yield FLAWED(flaw=str(error), file=str(policy.FILE))
        return
    if rule.park < math.inf and (why := admin_file.why_not_parked()):
        yield NOT_PARKED(why=why, file=str(policy.FILE))
    hours = {step: time for step, time in rule._asdict().items() if time < math.inf}
    if hours:
        steps = ", ".join(f"{_WORDS[step]} after {phrases.seconds(time)}" for step, time in hours.items())
        yield HOLDS(file=str(policy.FILE), steps=steps)
        if "JUPYTERHUB_USER" in machine.environ and "JUPYTERHUB_DISABLE_USER_CONFIG" not in machine.environ:
            yield AVOIDABLE()
