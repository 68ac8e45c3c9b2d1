"""A line of the magic: read once, refused where its word may not stand as it does, and handed to that word."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tfgpu_magic.config.flags import RESTART
from tfgpu_magic.config.vocabulary import find
from tfgpu_magic.config.word import Line, Word
from tfgpu_magic.errors import PolicyError, TfGpuError, UnknownWord
from tfgpu_magic.words import table


def answer(line: str) -> object:
    """Do what a line asks; what is returned is to be shown, if it is anything.

    Raises:
        TfGpuError: it cannot be done; its text says why, and what can.
    """
    said = read(line, table.WORDS)
    if said.word.answer is None:
        usage = "" if said.word.above is None else f" {said.word.above.usage}"
        raise PolicyError(f"`{said.word.name}` stands above a cell:{usage}")
    if said.rest and said.word.alone:
        raise PolicyError(f"`{said.word.name}` stands alone; {said.rest!r} is too much. `%tf_gpu?` explains the words.")
    return said.word.answer(said)


def above(line: str, cell: str, shell: Any) -> Callable[[], object]:
    """Get ready to do what a line above a cell asks; what is returned does it, and gives the cell's value.

    Raises:
        TfGpuError: it cannot be done; its text says why, and what can.
    """
    said = read(line, table.WORDS)
    if said.word.above is None:
        fitting = " or ".join(f"`%%tf_gpu {word.name}`" for word in table.WORDS if word.above)
        meant = f" {said.name!r} stands in a line of its own, with one %." if said.name else ""
        raise PolicyError(f"Above a cell, only {fitting} can stand.{meant} `%tf_gpu?` explains it.")
    return said.word.above.prepare(said, cell, shell)


def read(line: str, words: tuple[Word, ...]) -> Line:
    """Read a line.

    Raises:
        PolicyError: its first word is none, or `--restart` cannot stand beside it.
    """
    tokens = line.partition("#")[0].split()
    name, rest = parted(" ".join(token for token in tokens if token != RESTART))
    restart = RESTART in tokens
    if restart and not name:
        raise PolicyError(f"{RESTART} of what? Write the words before it: `%tf_gpu limit 2GiB {RESTART}`.")
    word = find(name, words)
    if restart and not word.restart:
        raise PolicyError(f"`{word.name}` sets nothing, so {RESTART} has no place beside it.")
    return Line(name, rest, restart, word, words)


def parted(text: str) -> tuple[str, str]:
    """The first word of a text, and what follows it."""
    name = re.split(r"[\s;]", text, maxsplit=1)[0]
    return name, text.removeprefix(name).strip()


def explained(error: TfGpuError) -> str:
    """The text of an error; where a policy has a word in it that is none of a policy's, that of the word."""
    if not isinstance(error, UnknownWord):
        return str(error)
    for word in table.WORDS:
        if error.name.lower() in word.names:
            return f"`{word.name}` is no policy: it stands alone, at the beginning of its line."
        if error.name.lower() in word.tried:
            return f"{error.name!r} is not a word of %tf_gpu. {word.instead}"
    return str(error)
