"""The policy of a program that `tfgpu run` runs: applied in the program's own Python, or put into variables."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tfgpu_magic import units
from tfgpu_magic.command.wording import frameworks, in_shell, translated
from tfgpu_magic.engine import engine, every_framework, in_force
from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import import_hook
from tfgpu_magic.frameworks.runtime import RUNTIME, environment, export
from tfgpu_magic.notebook.reporter import Reporter
from tfgpu_magic.policy import POLICY, script
from tfgpu_magic.policy.plan import Plan

_AGAIN = 2.0
"""Seconds between two looks while it waits for room: each costs a process of its own."""


class _TellingReporter(Reporter):
    """The reporter of a program, which also tells what is not in force of its policy."""

    def _publish(self) -> None:
        super()._publish()
        in_force.tell()


def apply(policy: str, wait: str | None, words: Sequence[str], *, options: str, tool: str) -> int:
    """Apply a policy in this process, whose program has not begun, and return 0.

    Args:
        policy: its words.
        wait: how long to wait for room, as the user has typed it.
        words: the command behind ``--``.
        options: those of `tfgpu run` that belong to the command, with a blank after them.
        tool: the name of a command that Python runs though it is not called as Python; empty for any other.
    """
    import_hook.SPEAKER = "tfgpu"
    name = sys.argv[0]
    reporter = _TellingReporter(name="" if name in ("", "-", "-c", "-m") else str(Path(name).absolute()))
    plan = in_shell(lambda: _in_time(engine.apply, policy, wait), partial(_line, words, options=options))
    export(POLICY, str(every_framework.of_all(plan.settled, plan.others.settled)))  # for kernels that it starts
    reporter.start()
    if plan.acts_on_nothing:
        print(f"tfgpu: {engine.standing(plan)}", file=sys.stderr)
    elif tool and any(one.limited for one in plan.asked.memory):
        print(
            f"tfgpu: `{plan.asked}` holds in {tool} itself, and in kernels that load tfgpu_magic. "
            "Other programs that it starts have no limit.",
            file=sys.stderr,
        )
    if said := every_framework.left_out(plan):
        print(f"tfgpu: {said}", file=sys.stderr)
    return 0


def variables(policy: str, wait: str | None, words: Sequence[str], why: str) -> dict[str, str]:
    """Return the environment of a command in which no policy can be applied, or refuse what variables cannot say.

    Args:
        policy: its words.
        wait: how long to wait for room, as the user has typed it.
        words: the command.
        why: why none can be applied there.
    """
    plan = in_shell(lambda: _in_time(engine.plan, policy, wait), partial(_line, words))
    # Beside Keras' other backends TensorFlow is kept from the GPUs, too: that was not asked, and no variable says it.
    limited = any(request.limited for request in plan.asked.memory)
    if plan.needs_tensorflow and (limited or plan.cpus is not None or any(device.capped for device in plan.devices)):
        asked = limited or plan.cpus is not None
        unsaid = f"`{plan.asked}`" if asked else f"the ceiling `{RUNTIME.ceiling}`"
        raise Refused(
            f"No environment variable says all of {unsaid}, and {why}. For the Python program that it starts:\n"
            f"  {_line(['program.py'], policy)}"
        )
    changed = {**environment(), **script.variables(plan)}
    return {name: value for name, value in changed.items() if value is not None}


def _in_time(make: Callable[..., Plan], policy: str, wait: str | None) -> Plan:
    """Return the plan of a policy, which is tried again until others leave room for it or the time is over."""
    end, told = time.monotonic() + (0.0 if wait is None else units.seconds(wait)), False
    while True:
        try:
            return make(policy, frameworks=frameworks(policy))
        except Refused as error:
            left = end - time.monotonic()
            if left <= 0 or not error.crowded:
                raise
            if not told:
                print(f"tfgpu: Waiting for room, {wait} at the most. {translated(error.reason)}", file=sys.stderr)
            told = True
        time.sleep(min(left, _AGAIN))


def _line(words: Sequence[str], policy: str, *, options: str = "") -> str:
    """Return the line that runs the same program under another policy."""
    return f'tfgpu run {options}"{policy}" -- {shlex.join(words)}'
