"""Runs a command line of `tfgpu`: the table of commands says how it is written, and only its own module is imported.

A command is a module here. It has `run(line)`, which does it and returns the exit status, or a function that is to be
called instead of returning, outside of all handlers of this package; and may have `MORE`, which its help adds.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import groupby
from typing import Any

from tfgpu_magic._version import __version__
from tfgpu_magic.errors import PolicyError, Refused, TfGpuError
from tfgpu_magic.notebook.words import arguments, line, table
from tfgpu_magic.policy.parser import aligned, nearest, parse
from tfgpu_magic.policy.word import ParsedLine, ShellForm, Word

PROGRAM = "tfgpu"
WRONG = 2
"""The exit status for a mistake in the words, and for a policy that cannot be had here: nothing was done."""
CROWDED = os.EX_TEMPFAIL
"""The exit status for a policy that could be had if other processes held less: a batch system may try it again."""
FAILED = 1
"""The exit status if the output takes no more."""


def answer(words: list[str]) -> int | Callable[[], int]:
    """Do what the words say, and return the exit status, or what is to be called for it outside of all handlers."""
    try:
        outcome = _outcome(words)
        if sys.stdout is not None:  # it is None if the command was started with its output closed
            sys.stdout.flush()
    except TfGpuError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return CROWDED if isinstance(error, Refused) and error.retryable else WRONG
    except OSError as error:
        return _not_written(error)
    return outcome


def read(words: list[str]) -> ParsedLine:
    """Parse a command line.

    Raises:
        TfGpuError: there is no such command, or it is not written so.
    """
    place = words.index("--") if "--" in words else len(words)
    (name, *tokens), program = words[:place] or [""], words[place + 1 :]
    if not name:
        raise TfGpuError(f'there is no command. To run a program:   {PROGRAM} run "POLICY" {shlex.join(words)}')
    word, form = _find(name, tokens, program)
    if "--" in words and not form.takes_program:
        raise PolicyError(f"`{PROGRAM} {name}` takes no program: {shlex.join(words[place:])!r} is too much.")
    usage = f"Write `{_usage(word, form)}`."
    flags, values = arguments.parse(name, tokens, form.flags, form.rest, usage)
    if form.rest and not values:
        raise PolicyError(f"POLICY is missing. {usage}")
    return ParsedLine(name, " ".join(values), False, word, flags=flags, values=values, program=tuple(program))


def is_drawn_on() -> bool:
    """Return whether the output is a terminal on which can be drawn; which are dumb is as rich has it."""
    drawn = sys.stdout is not None and sys.stdout.isatty()
    return drawn and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def _outcome(words: list[str]) -> int | Callable[[], int]:
    ours = words[: words.index("--")] if "--" in words else words
    if ours == ["--version"]:
        print(f"{PROGRAM} {__version__}")
        return 0
    if not words or ours[:1] == ["help"] or arguments.HELP & set(ours):
        named = [word for word in ours if word not in ("help", *arguments.HELP)]
        print(_of_command(named[0]) if named else _of_all(), end="")
        return 0
    parsed = read(words)
    if not parsed.program and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names and bars may have what the terminal's encoding has not
    form = parsed.word.shell
    own = "word" if form and form.as_word else parsed.name
    outcome: int | Callable[[], int] = _module(own).run(parsed)
    return outcome


def _find(name: str, tokens: Sequence[str] = (), program: Sequence[str] = ()) -> tuple[Word, ShellForm]:
    """Return a command and its form; of a policy, and of what is at home in a notebook, the error says how it runs."""
    commands = {word.name: (word, form) for word, form in table.in_shells()}
    if name in commands:
        return commands[name]
    elsewhere = {word.name: word for word in table.in_notebooks() if word.name not in commands}
    near = difflib.get_close_matches(name.lower(), [*commands, *elsewhere], n=1)
    wrong = f"{name!r} is not a command."
    if not near or near[0] in commands:
        raise PolicyError(f"{wrong}{nearest(name, commands)} `{PROGRAM} help` lists them.")
    there = elsewhere[near[0]]
    begin, usage = "" if there.name == name.lower() else f"{wrong} Did you mean {there.name!r}? ", there.usage[0]
    if not there.restart:
        line = usage if usage.startswith("%") else f"%tf_gpu {usage}"
        raise PolicyError(f"{begin}`{there.name}` is a command of a notebook:   {line}")
    with contextlib.suppress(PolicyError):
        usage = str(parse(" ".join([there.name, *tokens])))
    line = f'{PROGRAM} run "{usage}" -- {shlex.join(program) or "program.py"}'
    raise PolicyError(f"{begin}`{there.name}` is a policy. To run a program under it:   {line}")


def _of_all() -> str:
    """Return the help of all commands."""
    groups = [
        f"{group}:\n{aligned([((f'{word.name:<8}',), form.meaning) for word, form in some])}"
        for group, some in groupby(table.in_shells(), lambda command: command[1].group)
    ]
    usage = [f"{PROGRAM} COMMAND ...", f"{PROGRAM} --version"]
    return arguments.explained(usage, "share GPUs: run programs under a policy, see who holds what", (), *groups)


def _of_command(name: str) -> str:
    """Return the help of one command."""
    word, form = _find(name)
    more = [] if name == "help" else [getattr(line.module(word) if form.as_word else _module(name), "MORE", "")]
    if form.rest:
        more.append(_module("wording").WORDS)
    return arguments.explained([_usage(word, form)], form.meaning, form.flags, *more)


def _usage(word: Word, form: ShellForm) -> str:
    return f"{PROGRAM} {word.name} {form.usage}".rstrip()


def _module(name: str) -> Any:
    return import_module(f"{__package__}.{name}")


def _not_written(error: OSError) -> int:
    """Print why the output cannot be written, unless its reader has ended, as `head` does; return the exit status."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would complain at its end again
    if isinstance(error, BrokenPipeError):
        return 128 + signal.SIGPIPE
    print(f"{PROGRAM}: {error}", file=sys.stderr)
    return FAILED
