"""The command line of `tfgpu`: the parser and the help are made from `table`, and only one command is imported."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from tfgpu_magic._version import __version__
from tfgpu_magic.command.table import COMMANDS
from tfgpu_magic.errors import TfGpuError

PROGRAM = "tfgpu"
WRONG = 2
"""The exit status for a mistake in the words, and for a policy that is refused: nothing was done."""


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status."""
    try:
        outcome = _answer(list(sys.argv[1:] if words is None else words))
        sys.stdout.flush()
    except TfGpuError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:  # the reader of a pipe has ended, as `head` does; Python would complain at its end again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return outcome() if callable(outcome) else outcome


def parser(chosen: str) -> argparse.ArgumentParser:
    """Return the parser; of the commands, only the chosen one has its arguments, since only its module is imported."""
    made = argparse.ArgumentParser(PROGRAM, description="Share GPUs: run programs under a policy, see who holds what.")
    made.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    for command in COMMANDS:
        own = commands.add_parser(
            command.name,
            usage=f"{PROGRAM} {command.name} {command.usage}".rstrip(),
            help=command.meaning,
            description=f"{command.meaning[0].upper()}{command.meaning[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command.name == chosen:
            _module(command.name).prepare(own)
    return made


def _answer(words: list[str]) -> int | Callable[[], int]:
    place = words.index("--") if "--" in words else len(words)
    ours, program = words[:place] or ["help"], words[place + 1 :]
    if ours[0] == "help":
        ours = [*ours[1:], "--help"]
    made = parser(ours[0])
    options = made.parse_args(ours, argparse.Namespace(program=program))
    (command,) = (one for one in COMMANDS if one.name == options.command)
    if "--" in words and not command.takes_program:
        made.error(f"`{PROGRAM} {command.name}` takes no program: {' '.join(words[place:])!r} is too much")
    outcome: int | Callable[[], int] = _module(command.name).run(options)
    return outcome


def _module(name: str) -> Any:
    return import_module(f"{__package__}.{name}")


def _interrupted() -> int:
    """End as a program that Ctrl-C ends: a shell script that runs it is then ended too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    return 128 + signal.SIGINT
