"""A line of the magic: parsed once, refused if its word may not stand there, and passed to that word."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tfgpu_magic.errors import PolicyError, TfGpuError, UnknownWord
from tfgpu_magic.ground.message import HELP, RESTART, WAIT, FrontEnd, Line, join_commas, msg, paragraph
from tfgpu_magic.notebook.words import POLICIES
from tfgpu_magic.policy.parser import find, unknown
from tfgpu_magic.policy.word import Magic, ParsedLine, Word

if TYPE_CHECKING:
    from IPython.core.error import UsageError

    from tfgpu_magic.ground.answer import Code


def run(line: str, magic: Magic = "tf_gpu") -> object:
    """Run a line, and return its answer, if it has one.

    Args:
        line: what follows the magic's name.
        magic: the magic's name.

    Raises:
        TfGpuError: it cannot be done; its text says why, and what can.
    """
    parsed = read(line, magic)
    word = parsed.word
    if word.name != "help" and (explained := _help_for(parsed)):
        return explained
    if parsed.rest and word.alone:
        alone = f"`{word.name}` stands alone; {parsed.rest!r} is too much."
        raise PolicyError(msg("{alone} `{help}` explains the commands.", alone=alone, help=HELP))
    if word.flags and not word.restart:
        try:
            parsed = with_arguments(parsed)
        except PolicyError:
            if word.above is None or word.above.flags == word.flags:
                raise
            raise PolicyError(paragraph((f"`{word.name}` stands above a cell.", word.forms))) from None
    answered: object = module(word).run(parsed)
    return answered


def prepare(line: str, cell: str, shell: Any, magic: Magic = "tf_gpu") -> Callable[[], object]:
    """Prepare what a line above a cell asks. The function that is returned does it, and returns the cell's value.

    Raises:
        TfGpuError: it cannot be done; its text says why, and what can.
    """
    parsed = read(line, magic)
    if parsed.word.above is None:
        *first, last = (msg("`{line}`", line=Line(word.name, "above")) for word in _words() if word.above)
        only = msg("Above a cell, only {first} or {last} can stand.", first=join_commas(first), last=last)
        meant = f"{parsed.name!r} stands in a line of its own, with one %." if parsed.name else ""
        raise PolicyError(paragraph((only, meant, msg("`{help}` explains it.", help=HELP))))
    if explained := _help_for(parsed):
        return lambda: explained
    prepared: Callable[[], object] = module(parsed.word).prepare(with_arguments(parsed, above=True), cell, shell)
    return prepared


def with_arguments(parsed: ParsedLine, *, above: bool = False) -> ParsedLine:
    """Return a line with its flags and values, as `arguments.parse` separates them.

    Args:
        parsed: the line.
        above: whether it stands above a cell.

    Raises:
        PolicyError: they are not written so.
    """
    arguments, _ = _table()
    word = parsed.word
    flags, takes = (word.above.flags, word.above.rest) if above and word.above else (word.flags, word.takes * "VALUES")
    tokens = parsed.rest.replace(";", " ; ") if takes == "POLICY" else parsed.rest
    given, values = arguments.parse(word.name, tokens.split(), flags, takes, word.forms)
    return parsed._replace(flags=given, values=values)


def _help_for(parsed: ParsedLine) -> Code | None:
    """Return the help for a line's word if a flag asks for it."""
    if not {"--help", "-h"} & set(parsed.rest.split()):
        return None
    explained: Code = module(find("help", _words())).run(parsed._replace(rest=parsed.word.name))
    return explained


def usage() -> str:
    """Return what `%tf_gpu?` shows."""
    text: str = module(find("help", _words())).text(_words())
    return text


def module(word: Word) -> Any:
    """Return the module of what a word does, imported when it is said or completed, and not before."""
    return import_module(word.home or f".{word.name}", __package__)


def _table() -> tuple[Any, Any]:
    """Return the module that parses flags, and that of all commands."""
    from tfgpu_magic.notebook.words import arguments, table  # speed of a first `%tf_gpu` line: a policy needs neither

    return arguments, table


def _words() -> tuple[Word, ...]:
    words: tuple[Word, ...] = _table()[1].in_notebooks()
    return words


def read(line: str, magic: Magic = "tf_gpu") -> ParsedLine:
    """Parse a line, but for the flags and values of its word.

    Raises:
        PolicyError: its first word is unknown, or a flag cannot stand beside it.
    """
    tokens = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].split()  # `train#2.ipynb` is a name
    restart = RESTART in tokens
    name, rest = split_name(" ".join(token for token in tokens if token != RESTART))
    if restart and not name:
        what = f"{RESTART} of what? Write a policy before it:"
        raise PolicyError(msg("{what} `{line}`.", what=what, line=Line("limit 2GiB", restarts=True)))
    word = next((word for word in POLICIES if word.name == name.lower()), None) or _find(name, rest)
    if restart and not word.restart:
        raise PolicyError(f"`{word.name}` sets nothing, so {RESTART} has no place beside it.")
    flags: dict[str, str] = {}
    if word.restart and WAIT in rest:
        arguments, table = _table()
        tokens = f"{name} {rest}".replace(";", " ; ").split()
        flags, (name, *more) = arguments.parse(word.name, tokens, (table.WAITS,), "POLICY", word.forms)
        rest = " ".join(more)
    return ParsedLine(name, rest, restart, word, magic, flags)


def _find(name: str, rest: str) -> Word:
    """Return the command of that name; of one that only a shell has, the error has the line that runs it from here."""
    *_, table = _table()
    words = table.in_notebooks()
    own = (word.name for word, form in table.in_shells() if not word.usage and (form.rest or rest[:2] in ("", "--")))
    if name in own:  # and `limits 2GiB` is meant for a limit
        line = Line(f"{name} {rest}".rstrip(), "shell")
        raise PolicyError(msg("`{name}` is a command of a shell:   {line}", name=name, line=line))
    return find(name, words)


def split_name(text: str) -> tuple[str, str]:
    """Return the first word of a text, and what follows it."""
    name = re.split(r"[\s;]|(?<=[^\W\d]),", text, maxsplit=1)[0]
    return name, text.removeprefix(name).strip()


def usage_error(error: TfGpuError, line: str, shell: Any, magic: Magic = "tf_gpu") -> UsageError:
    """Return the error that ends a cell whose line was refused. IPython shows no traceback, and stops "run all"."""
    from tfgpu_magic.engine import offers  # only a refusal has any

    return offers.offering(shell, reword(error).message, f"%{magic} {line}", FrontEnd(magic))


def reword(error: TfGpuError) -> TfGpuError:
    """Return an error, or if a word that is no policy stands in a policy, the one about that word."""
    if not isinstance(error, UnknownWord):
        return error
    for word in _words():
        if error.name.lower() in word.names:
            return PolicyError(f"`{word.name}` is no policy: it stands alone, at the beginning of its line.")
        if error.name.lower() in word.tried:
            return unknown(error.name, word.instead)
    return error
