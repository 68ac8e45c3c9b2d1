"""What `tfgpu run` is to run, as far as its words tell: a Python program, an interpreter, or any other command."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePath

_PYTHON = re.compile(r"(python|pypy)[0-9.]*", re.ASCII)
_WITH_VALUE = "WX"
"""Python's short options that a value follows, in the same word or in the next."""
_LONG_WITH_VALUE = "--check-hash-based-pycs"
"""Python's only long option that a value follows."""
_LONGEST_SHEBANG = 256


def is_program(words: Sequence[str]) -> bool:
    """Tell whether words are those behind ``python``: ``-m``, ``-c``, or a script by its name, or a folder."""
    first = words[0]
    is_script = first.endswith((".py", ".pyw", ".pyc", ".pyz")) or Path(first, "__main__.py").exists()
    return first in ("-m", "-c") or is_script


def interpreter(words: Sequence[str]) -> list[str]:
    """Return the Python interpreter that runs a command, with its options; empty where none does.

    One is found also where the command is a file whose first line has it run by Python, as ``pip`` installs them.
    """
    first = words[:1] if is_python(words[0]) else _shebang(words[0])
    if not (first and is_python(first[0])):
        return []
    called, place = [*first, *words[1:]], 1
    while place < len(called) and called[place].startswith("-") and called[place] not in ("-", "--"):
        word = called[place]
        ends = None if word.startswith("--") else re.search(f"[cm{_WITH_VALUE}]", word)
        if ends is not None and ends[0] in "cm":
            flags = word[: ends.start()]
            return [*called[:place], *([flags] if flags != "-" else [])]
        takes_next = word == _LONG_WITH_VALUE if ends is None else not word[ends.end() :]
        place += 2 if takes_next else 1
    return called[:place]


def is_python(word: str) -> bool:
    """Tell whether a command is a Python interpreter, by its name."""
    return _PYTHON.fullmatch(PurePath(word).name) is not None


def _shebang(name: str) -> list[str]:
    """Return the words of the first line of a command's file, and the file; nothing where it has no such line."""
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
