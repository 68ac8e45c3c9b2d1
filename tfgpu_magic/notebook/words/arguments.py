"""Parses and explains what follows a command's name, in a line, above a cell and in a shell alike. With argparse. Pure.

None of argparse's own sentences is shown: they differ between Python's versions.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground.message import Message, paragraph
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.parser import POLICY_WORDS, nearest
from tfgpu_magic.policy.word import Flag

HELP = {"--help", "-h"}
"""The flags that explain a command, which every command has."""

_POLICY = {f"--{word.name}" for word in POLICY_WORDS}
_TIME = re.compile(r"[0-9.]+(ms|s|m|h)?", re.IGNORECASE)
_OF_A_POLICY = {flag.name for word in POLICY_WORDS for flag in word.flags}


def parse(
    name: str, tokens: Sequence[str], flags: Sequence[Flag], takes: str, usage: Message | str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Separate the flags of a command from the values.

    Args:
        name: the command.
        tokens: what follows its name.
        flags: the flags that it has here.
        takes: what may follow the flags; "" if nothing may. POLICY is a policy, whose flags stand behind its words, and
            a word of which may be written as a flag: ``--limit 2GiB`` is ``limit 2GiB``.
        usage: how it is written, with which each error ends.

    Returns:
        The flags with their values ("" for one that takes none), and the values one by one.

    Raises:
        PolicyError: a flag is unknown, is given twice, without its value or with one that it does not take; or nothing
            may follow the flags.
    """
    known = {flag.name: flag for flag in flags}
    reader = _Parser(prog=name, add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in flags:
        many = "+" if flag.takes.endswith("...") else 1 if flag.takes else 0
        reader.add_argument(flag.name, dest=flag.name, action=_Once, nargs=many, default=argparse.SUPPRESS)
    try:
        given, values = reader.parse_known_args(_filled(tokens, flags))
    except argparse.ArgumentError as error:
        wrong = known[error.argument_name or ""]
        lack = f"needs {wrong.takes.removesuffix(' ...')}" if wrong.takes else "takes no value"
        raise PolicyError(paragraph((f"{wrong.name} {lack}.", usage))) from None
    begun = False
    for flag_ in (value.partition("=")[0].lower() for value in values):
        of_policy = takes == "POLICY" and (flag_ in _POLICY or (begun and flag_ in _OF_A_POLICY))
        if flag_.startswith("-") and flag_ != "-" and not of_policy:
            theirs = sorted(_POLICY | (_OF_A_POLICY if begun else set())) if takes == "POLICY" else []
            shown = [*theirs, *(flag.name for flag in flags if flag.meaning)]
            near = nearest(flag_, shown, {tried: flag.name for flag in flags for tried in flag.tried})
            raise PolicyError(paragraph((f"{name!r} has no flag {flag_!r}.{near}", usage)))
        begun = True
    if values and not takes:
        raise PolicyError(paragraph((f"`{name} {' '.join(tokens)}` cannot be done.", usage)))
    return vars(given), tuple(_without_dashes(values) if takes == "POLICY" else values)


def _filled(tokens: Sequence[str], flags: Sequence[Flag]) -> list[str]:
    """Return the tokens, in which each flag whose time may be left out is one with that time."""
    optional = {flag.name: flag.values[0] for flag in flags if flag.takes.startswith("[")}
    filled: list[str] = []
    for token in tokens:
        if filled and filled[-1] in optional and _TIME.fullmatch(token):
            filled[-1] += f"={token}"
        else:
            filled.append(token)
    return [f"{token}={optional[token]}" if token in optional else token for token in filled]


def _without_dashes(values: Sequence[str]) -> Iterator[str]:
    """Yield the tokens of a policy, whose words may be written as flags: each begins the next request."""
    for number, value in enumerate(values):
        is_flag = value.partition("=")[0].lower() in _POLICY
        if is_flag and number:
            yield ";"
        yield value[2:].replace("=", " ", 1) if is_flag else value


def explained(usage: Sequence[str], meaning: str, flags: Sequence[Flag], *more: str) -> str:
    """Return the help of one command.

    Args:
        usage: the forms in which it is written.
        meaning: what it does.
        flags: its flags.
        more: further paragraphs.
    """
    forms = "\n       ".join(usage)
    sentence = textwrap.fill(f"{meaning[0].upper()}{meaning[1:]}.", parser.WIDTH, break_on_hyphens=False)
    return "\n\n".join(filter(None, [f"Usage: {forms}", sentence, parser.flags(flags), *more])) + "\n"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise PolicyError(message)


class _Once(argparse.Action):
    """Notes the value of a flag, "" if it takes none."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, _: Any = None) -> None:
        if self.dest in namespace:
            parser.error(f"{self.dest} is given twice.")
        setattr(namespace, self.dest, " ".join(values))
