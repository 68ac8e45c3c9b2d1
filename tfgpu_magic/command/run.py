"""`tfgpu run`: applies a policy to an unchanged program, in its own process and before it begins.

A Python program is run by this process (`program`), with the policy applied as `tfgpu_magic.apply` does. For Python by
another name, this process becomes that interpreter, which does the same. Any other command has what environment
variables can say; what they cannot is refused.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import NoReturn

from tfgpu_magic import control, framework_notes
from tfgpu_magic.command import program
from tfgpu_magic.command.target import PythonProgram, interpreter, is_python, python_program
from tfgpu_magic.command.wording import WORDS, frameworks, in_shell
from tfgpu_magic.config import script
from tfgpu_magic.config.runtime import current_stage, environment, export
from tfgpu_magic.config.variables import POLICY
from tfgpu_magic.errors import Refused, TfGpuError
from tfgpu_magic.monitor import claims
from tfgpu_magic.reporter import Reporter

_EXAMPLES = """\
Examples:
  tfgpu run "limit 40%" -- program_1.py --epochs 3
  tfgpu run "visible 3,2; limit 40%" -- -m package.train
  tfgpu run "pick; growth" -- make train

A Python script, -m MODULE and -c CODE run in this process, under this Python;
so does what another Python is to run, in that one. Arguments, output, signals
and the exit status are the program's own. Any other command has what variables
can say: visible, pick and growth; the rest is refused. Where the policy is
refused, nothing is started, and the exit status is 2."""

_SCRIPT, _CALLED = "--script", "--called"
_NOT_FOUND, _NOT_RUN = 127, 126  # as shells have it


def prepare(arguments: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    arguments.epilog = f"{_EXAMPLES}\n\n{WORDS}"
    arguments.add_argument("policy", nargs="+", metavar="POLICY", help="what holds for the program: `limit 40%%`")
    arguments.add_argument(_SCRIPT, action="store_true", help="PROGRAM is a Python script, whatever its name")
    # What the user has typed, of which PROGRAM is what this Python was started for.
    arguments.add_argument(_CALLED, type=shlex.split, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int | Callable[[], int]:
    """Apply the policy, or refuse it; return what runs the program."""
    words, policy = list(options.program), " ".join(options.policy)
    if not words:
        raise TfGpuError(f'there is no program to run. Write it behind --:   tfgpu run "{policy}" -- program.py')
    found = python_program(words, script=options.script or options.called is not None)
    if found is not None:
        return _python(policy, found, options)
    called = interpreter(words)
    if called is not None:
        python, rest = called
        ours = ["run", f"{_CALLED}={shlex.join(words)}", policy, "--", *rest]
        return partial(_become, [*python, "-m", "tfgpu_magic", *ours], environment())
    return partial(_become, words, _variables(policy, words))


def _python(policy: str, found: PythonProgram, options: argparse.Namespace) -> int | Callable[[], int]:
    """Apply a policy here, and return what runs a Python program; where there is none, say so as Python does."""
    if why := program.missing(found):
        print(f"tfgpu: {why}", file=sys.stderr)
        return 2
    line = partial(_line, options.called or options.program, script=options.script)
    reporter = Reporter(name=_title(found))
    claims.announced_by(reporter.announce)
    plan = in_shell(lambda: control.apply(policy, frameworks=frameworks(policy)), line)
    export(POLICY, str(plan.settled_of_all))  # for kernels that it starts
    reporter.start()
    if plan.acts_on_nothing:
        print(f"tfgpu: {control.standing(plan, current_stage())}", file=sys.stderr)
    elif options.called and not is_python(options.called[0]) and any(one.limited for one in plan.asked.memory):
        print(
            f"tfgpu: `{plan.asked}` holds in {PurePath(found.what).name} itself, and in kernels that load tfgpu_magic. "
            "Other programs that it starts have no limit.",
            file=sys.stderr,
        )
    if said := framework_notes.left_out(plan):
        print(f"tfgpu: {said}", file=sys.stderr)
    return partial(program.execute, found)


def _title(found: PythonProgram) -> str:
    """Return what a program is called in every table, or the path of a file that is called so."""
    if found.kind == "script":
        return str(Path(found.what).absolute())
    return f"python -m {found.what}" if found.kind == "-m" else ""


def _variables(policy: str, words: Sequence[str]) -> dict[str, str]:
    """Return the environment of a command that is not Python's.

    Raises:
        TfGpuError: the policy is refused, or asks for more than variables can say.
    """
    plan = in_shell(lambda: control.plan(policy, frameworks=frameworks(policy)), partial(_line, words))
    # Beside Keras' other backends TensorFlow is kept from the GPUs, too: that was not asked, and no variable says it.
    if plan.needs_tensorflow and (plan.cpus is not None or any(request.limited for request in plan.asked.memory)):
        raise Refused(
            f"No environment variable says all of `{plan.asked}`, and {PurePath(words[0]).name} is not a "
            "Python program, in which it could be set. For the Python program that it starts:\n  "
            + _line(["program.py"], policy)
        )
    return _with(environment(), script.variables(plan))


def _with(environment: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    changed = {**environment, **changes}
    return {name: value for name, value in changed.items() if value is not None}


def _line(words: Sequence[str], policy: str, *, script: bool = False) -> str:
    """Return the line that runs the same program under another policy."""
    return f'tfgpu run {f"{_SCRIPT} " if script else ""}"{policy}" -- {shlex.join(words)}'


def _become(words: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Become another program, with the signals as they were before Python changed them."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606  # the user's command
    except OSError as error:
        print(f"tfgpu: {words[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUN)
