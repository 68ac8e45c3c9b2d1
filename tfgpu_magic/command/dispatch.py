"""Runs what a command line of `tfgpu` says: parser and help are made from `table`, and only one command is imported."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import groupby
from operator import attrgetter
from typing import Any

from tfgpu_magic._version import __version__
from tfgpu_magic.command.table import COMMANDS, REMOVED, Command
from tfgpu_magic.errors import Refused, TfGpuError

PROGRAM = "tfgpu"
WRONG = 2
"""The exit status for a mistake in the words, and for a policy that cannot be had here: nothing was done."""
CROWDED = os.EX_TEMPFAIL
"""The exit status for a policy that could be had if other processes held less: a batch system may try it again."""
FAILED = 1
"""The exit status where the output takes no more."""


def answer(words: list[str]) -> int | Callable[[], int]:
    """Do what the words say, and return the exit status, or what is to be called for it outside of all handlers."""
    try:
        outcome = _outcome(words)
        if sys.stdout is not None:  # it is None where the command was started with its output closed
            sys.stdout.flush()
    except TfGpuError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return CROWDED if isinstance(error, Refused) and error.retryable else WRONG
    except OSError as error:
        return _not_written(error)
    return outcome


def parser(chosen: str) -> argparse.ArgumentParser:
    """Return the parser; of the commands, only the chosen one has its arguments, since only its module is imported."""
    made = argparse.ArgumentParser(
        PROGRAM,
        description="Share GPUs: run programs under a policy, see who holds what.",
        epilog="\n\n".join(f"{group}:\n{_listed(some)}" for group, some in groupby(COMMANDS, attrgetter("group"))),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", help="one of those below", required=True)
    for command in COMMANDS:
        own = commands.add_parser(
            command.name,
            usage=f"{PROGRAM} {command.name} {command.usage}".rstrip(),
            description=f"{command.meaning[0].upper()}{command.meaning[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command.name == chosen:
            _module(command.name).prepare(own)
    return made


def _listed(commands: Iterable[Command]) -> str:
    """Return lines with the names of commands and their meanings, as argparse would align them."""
    return "\n".join(
        textwrap.fill(f"  {command.name:<10}{command.meaning}", 78, subsequent_indent=" " * 12) for command in commands
    )


def _outcome(words: list[str]) -> int | Callable[[], int]:
    place = words.index("--") if "--" in words else len(words)
    ours, program = words[:place], words[place + 1 :]
    if words and not ours:
        raise TfGpuError(f'there is no command. To run a program:   {PROGRAM} run "POLICY" {shlex.join(words)}')
    ours = ours or ["help"]
    if ours[0] == "help":
        ours = [*ours[1:], "--help"]
    if ours[0] in REMOVED:
        raise TfGpuError(f"`{PROGRAM} {ours[0]}` was removed. {REMOVED[ours[0]]}")
    made = parser(ours[0])
    options = made.parse_args(ours, argparse.Namespace(program=program))
    (command,) = (one for one in COMMANDS if one.name == options.command)
    if "--" in words and not command.takes_program:
        made.error(f"`{PROGRAM} {command.name}` takes no program: {' '.join(words[place:])!r} is too much")
    if not command.takes_program and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names and bars may have what the terminal's encoding has not
    outcome: int | Callable[[], int] = _module(command.name).run(options)
    return outcome


def is_drawn_on() -> bool:
    """Tell whether the output is a terminal on which can be drawn; which are dumb is as rich has it."""
    drawn = sys.stdout is not None and sys.stdout.isatty()
    return drawn and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def _module(name: str) -> Any:
    return import_module(f"{__package__}.{name}")


def _not_written(error: OSError) -> int:
    """Say why the output takes no more, but not where its reader has ended, as `head` does; return the exit status."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would complain at its end again
    if isinstance(error, BrokenPipeError):
        return 128 + signal.SIGPIPE
    print(f"{PROGRAM}: {error}", file=sys.stderr)
    return FAILED
