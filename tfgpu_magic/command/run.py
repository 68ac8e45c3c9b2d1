"""`tfgpu run`: runs an unchanged program under a policy, which is in force before the program begins.

The command is executed as it is, in this process. Where it is Python, the first Python that starts applies the policy
(`program_policy`): it finds the `sitecustomize` of the folder `first_python` on PYTHONPATH. Any other command has what
environment variables can say; what they cannot is refused.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import NoReturn

from tfgpu_magic import units
from tfgpu_magic.command.target import interpreter, is_program, is_python
from tfgpu_magic.command.wording import WORDS
from tfgpu_magic.errors import PolicyError, TfGpuError
from tfgpu_magic.policy import parser

_EXAMPLES = """\
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

_NOT_FOUND, _NOT_RUN = 127, 126  # as shells have it
_REACHED = 42
"""The exit status of a Python in which the policy can be applied."""


def prepare(arguments: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    arguments.epilog = f"{_EXAMPLES}\n\n{WORDS}"
    arguments.add_argument("policy", nargs="+", metavar="POLICY", help="what holds for the program: `limit 40%%`")
    arguments.add_argument("--script", action="store_true", help="PROGRAM is a Python script, whatever its name")
    arguments.add_argument("--wait", metavar="TIME", help="wait so long for room where others hold it: 90s, 10m, 2h")


def run(options: argparse.Namespace) -> Callable[[], int]:
    """Return what runs the program, in which the policy is applied or refused."""
    words, policy = list(options.program), " ".join(options.policy)
    if not words:
        said, rest = _parted(options.policy)
        command = shlex.join(rest or ["program.py"])
        raise TfGpuError(f'there is no program to run. Write it behind --:   tfgpu run "{said}" -- {command}')
    if options.wait is not None:
        units.seconds(options.wait)  # a mistake is told also where there is room
    is_ours = options.script or is_program(words)
    python = [sys.executable] if is_ours else interpreter(words)
    command, name = [*python, *words] if is_ours else words, PurePath(words[0]).name
    asked = {"policy": policy, "wait": options.wait, "words": words, "options": "--script " * options.script}
    if python and _applies(python):
        tool = "" if is_ours or is_python(name) else name
        return partial(_become, command, _with_first_python(**asked, tool=tool))
    from tfgpu_magic.command import program_policy  # a Python imports its own

    why = f"{name} is not a Python program, in which it could be set"
    if python:
        why = f"`{shlex.join(python)}` does not import what tfgpu puts on PYTHONPATH"
    return partial(_become, command, program_policy.variables(policy, options.wait, words, why))


def _with_first_python(**asked: object) -> dict[str, str]:
    """Return the environment in which the first Python that starts does what it is asked."""
    path = os.environ.get("PYTHONPATH")
    folder = str(Path(__file__).with_name("first_python"))
    return {
        **os.environ,
        "PYTHONPATH": f"{folder}{os.pathsep}{path}" if path else folder,
        "TFGPU_RUN": json.dumps({**asked, "path": path}),
    }


def _applies(python: list[str]) -> bool:
    """Tell whether a policy can be applied in a Python with its options.

    It cannot with -I, -E or -S, nor if a wrapper starts it without PYTHONPATH, or in a container.
    """
    environment, none = _with_first_python(reached=_REACHED), subprocess.DEVNULL
    try:
        done = subprocess.run([*python, "-c", ""], env=environment, stdin=none, stdout=none, stderr=none)
    except OSError:
        return True  # it cannot be run, which `_become` says
    return done.returncode == _REACHED


def _parted(said: Sequence[str]) -> tuple[str, list[str]]:
    """Return the policy with which words begin, and the rest, which may be meant for a program."""
    for place in range(len(said), 0, -1):
        with contextlib.suppress(PolicyError):
            return str(parser.parse(" ".join(said[:place]))), list(said[place:])
    return " ".join(said), []


def _become(words: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Become another program, with the signals as they were before Python changed them."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606  # the user's command
    except OSError as error:
        print(f"tfgpu: {words[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUN)
