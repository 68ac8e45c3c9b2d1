"""What `tfgpu run` is to run, as far as its words tell: a Python program, an interpreter, or any other command."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

_PYTHON = re.compile(r"(python|pypy)[0-9.]*", re.ASCII)
_WITH_VALUE = "WX"
"""Python's short options that a value follows, in the same word or in the next."""
_LONG_WITH_VALUE = "--check-hash-based-pycs"
"""Python's only long option that a value follows."""
_LONGEST_SHEBANG = 256


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """A Python program, as the words behind ``python`` name it.

    Attributes:
        kind: how it is named: the path of a script (or of a directory or zip file with a ``__main__.py``), ``-m`` and a
            module, ``-c`` and code.
        what: the path, the module or the code.
        arguments: the program's own.
    """

    kind: Literal["script", "-m", "-c"]
    what: str
    arguments: tuple[str, ...] = ()


def python_program(words: Sequence[str], *, script: bool = False) -> PythonProgram | None:
    """Return the Python program that the words name for the interpreter that runs this.

    Args:
        words: the program and its arguments.
        script: whether a program that is neither ``-m`` nor ``-c`` is a script whatever its name, as for ``python``.

    Returns:
        None if they name none.
    """
    first, *rest = words
    if first in ("-m", "-c") and rest:
        return PythonProgram("-m" if first == "-m" else "-c", rest[0], tuple(rest[1:]))
    is_script = first.endswith((".py", ".pyw", ".pyc", ".pyz")) or Path(first, "__main__.py").exists()
    return PythonProgram("script", first, tuple(rest)) if script or is_script else None


def interpreter(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Return a Python interpreter with its options, and the words of the program that it runs.

    Both are found also if the command is a file whose first line has it run by Python, as ``pip`` installs them.

    Args:
        words: a command.

    Returns:
        None if the command is not run by Python, or names no program: ``python`` alone reads one from a terminal.
    """
    first = words[:1] if is_python(words[0]) else _shebang(words[0])
    if not (first and is_python(first[0])):
        return None
    called, place = [*first, *words[1:]], 1
    while place < len(called) and called[place].startswith("-") and called[place] not in ("-", "--"):
        word = called[place]
        ends = None if word.startswith("--") else re.search(f"[cm{_WITH_VALUE}]", word)
        if ends is not None and ends[0] in "cm":
            flags, value = word[: ends.start()], word[ends.end() :]
            options = [*called[:place], *([flags] if flags != "-" else [])]
            return options, [f"-{ends[0]}", *([value] if value else []), *called[place + 1 :]]
        takes_next = word == _LONG_WITH_VALUE if ends is None else not word[ends.end() :]
        place += 2 if takes_next else 1
    program = called[place + 1 :] if called[place : place + 1] == ["--"] else called[place:]
    return (called[:place], program) if program and program[0] != "-" else None


def is_python(word: str) -> bool:
    """Return whether a command is a Python interpreter, by its name."""
    return _PYTHON.fullmatch(PurePath(word).name) is not None


def _shebang(name: str) -> list[str]:
    """Return the words of the first line of a command's file, and the file; nothing if it has no such line."""
    path = shutil.which(name)
    if path is None:
        return []
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # a Path would be made for nothing
            line = file.readline(_LONGEST_SHEBANG)
    except OSError:
        return []
    if not line.startswith(b"#!"):
        return []
    words = line[2:].decode(errors="replace").split()
    if words and PurePath(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    return [*words, path]
