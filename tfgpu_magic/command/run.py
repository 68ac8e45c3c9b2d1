"""`tfgpu run`: applies a policy to an unchanged program, in its own process and before it begins.

A Python program is run by this process (`program`), with the policy applied as `tfgpu_magic.apply` does. For Python by
another name, this process becomes that interpreter, which does the same. Any other command has what environment
variables can say; what they cannot is refused.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import NoReturn

from tfgpu_magic.command import program
from tfgpu_magic.command.target import PythonProgram, interpreter, is_python, python_program
from tfgpu_magic.command.wording import frameworks, in_shell
from tfgpu_magic.engine import engine, every_framework, in_force
from tfgpu_magic.errors import PolicyError, Refused, TfGpuError
from tfgpu_magic.frameworks import import_hook
from tfgpu_magic.frameworks.runtime import RUNTIME, environment, export
from tfgpu_magic.ground import units
from tfgpu_magic.ground.message import WAIT
from tfgpu_magic.notebook.reporter import Reporter
from tfgpu_magic.policy import POLICY, parser, script
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.word import ParsedLine

MORE = """\
Examples:
  tfgpu run "limit 40%" -- program_1.py --epochs 3
  tfgpu run "visible 3,2; limit 40%" -- -m package.train
  tfgpu run "pick; growth" -- make train
  tfgpu run --wait 10m "limit 4GiB" -- program_2.py

A Python script, -m MODULE and -c CODE run in this process, under this Python;
so does what another Python is to run, in that one. Arguments, output, signals
and the exit status are the program's own. Any other command has what variables
can say: visible, pick and growth; the rest is refused. If the policy is refused,
nothing is started. The exit status is then 75 if the policy would fit if other
processes held less GPU memory, and otherwise 2."""

_SCRIPT, _CALLED = "--script", "--called"
_NOT_FOUND, _NOT_RUN = 127, 126  # as shells have it


def run(line: ParsedLine) -> int | Callable[[], int]:
    """Apply the policy, or refuse it; return what runs the program."""
    words, policy, wait = list(line.program), line.rest, line.flags.get(WAIT)
    called = shlex.split(line.flags.get(_CALLED, ""))
    if not words:
        said, rest = _parted(line.values)
        raise TfGpuError(f"there is no program to run. Write it behind --:   {_line(rest or ['program.py'], said)}")
    if wait is not None:
        units.parse_seconds(wait)  # a mistake is told also if there is room
    found = python_program(words, script=_SCRIPT in line.flags or bool(called))
    if found is not None:
        return _python(policy, found, called, line)
    if (started := interpreter(words)) is not None:
        python, rest = started
        waits = [] if wait is None else [f"{WAIT}={wait}"]
        ours = ["run", *waits, f"{_CALLED}={shlex.join(words)}", policy, "--", *rest]
        return partial(_become, [*python, "-m", "tfgpu_magic", *ours], environment())
    return partial(_become, words, _variables(policy, words, wait))


class _TellingReporter(Reporter):
    """The reporter of a program, which also tells what is not in force of its policy."""

    def _publish(self) -> None:
        super()._publish()
        in_force.tell()


def _python(policy: str, found: PythonProgram, called: Sequence[str], said: ParsedLine) -> int | Callable[[], int]:
    """Apply a policy here, and return what runs a Python program; if there is none, say so as Python does."""
    if why := program.missing(found):
        print(f"tfgpu: {why}", file=sys.stderr)
        return 2
    line = partial(_line, called or said.program, script=_SCRIPT in said.flags)
    import_hook.SPEAKER = "tfgpu"
    reporter = _TellingReporter(name=_title(found))
    applied = partial(engine.apply, policy, wait=said.flags.get(WAIT))
    plan = in_shell(lambda: applied(frameworks=frameworks(policy)), line)
    export(POLICY, str(every_framework.of_all(plan.settled, plan.asked_of_all)))  # for kernels that it starts
    reporter.start()
    if plan.acts_on_nothing:
        print(f"tfgpu: {engine.standing(plan)}", file=sys.stderr)
    elif called and not is_python(called[0]) and any(one.limited for one in plan.asked.memory):
        print(
            f"tfgpu: `{plan.asked}` holds in {PurePath(found.what).name} itself, and in kernels that load tfgpu_magic. "
            "Other programs that it starts have no limit.",
            file=sys.stderr,
        )
    if left_out := every_framework.left_out(plan):
        print(f"tfgpu: {left_out}", file=sys.stderr)
    return partial(program.execute, found)


def _parted(said: Sequence[str]) -> tuple[str, list[str]]:
    """Return the policy with which words begin, and the rest, which may be meant for a program."""
    for place in range(len(said), 0, -1):
        with contextlib.suppress(PolicyError):
            return str(parser.parse(" ".join(said[:place]))), list(said[place:])
    return " ".join(said), []


def _title(found: PythonProgram) -> str:
    """Return what a program is called in every table, or the path of a file that is called so."""
    if found.kind == "script":
        return str(Path(found.what).absolute())
    return f"python -m {found.what}" if found.kind == "-m" else ""


def _variables(policy: str, words: Sequence[str], wait: str | None) -> dict[str, str]:
    """Return the environment of a command that is not Python's, or refuse what variables cannot say."""

    def planned() -> Plan:
        wanted, which = parser.parse(policy), frameworks(policy)
        return engine.in_time(lambda: engine.plan(wanted, frameworks=which), wanted, wait, which)

    plan = in_shell(planned, partial(_line, words))
    # Beside Keras' other backends TensorFlow is kept from the GPUs, too: that was not asked, and no variable says it.
    limited = any(request.limited for request in plan.asked.memory)
    if plan.needs_tensorflow and (limited or plan.cpus is not None or any(device.capped for device in plan.devices)):
        asked = limited or plan.cpus is not None
        unsaid = f"`{plan.asked}`" if asked else f"the ceiling `{RUNTIME.ceiling}`"
        raise Refused(
            f"No environment variable says all of {unsaid}, and {PurePath(words[0]).name} is not a Python program, in "
            f"which it could be set. For the Python program that it starts:\n  {_line(['program.py'], policy)}"
        )
    changed = {**environment(), **script.variables(plan)}
    return {name: value for name, value in changed.items() if value is not None}


def _line(words: Sequence[str], policy: str, *, script: bool = False, waits: bool = False) -> str:
    """Return the line that runs the same program under another policy."""
    flags = "".join(f"{flag} " for flag, given in ((_SCRIPT, script), (WAIT, waits)) if given)
    return f'tfgpu run {flags}"{policy}" -- {shlex.join(words)}'


def _become(words: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Become another program, with the signals as they were before Python changed them."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606  # the user's command
    except OSError as error:
        print(f"tfgpu: {words[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUN)
