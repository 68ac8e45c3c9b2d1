"""Names a program by its command line, and a kernel by its notebook's path, from text alone. Pure."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from tfgpu_magic.probe import CALLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ISOLATED = "isolated call"
"""The name of the processes of isolated cells and calls."""

LAUNCHER = "tfgpu"
"""The command under which programs run; they are named by themselves, and not by it."""


def notebook_path(environment: Mapping[str, str]) -> str:
    """Return the path of a kernel's notebook from the variable that Jupyter Server sets; empty where it sets none.

    A session without a name has the path of a folder, which ends with a slash.
    """
    path = environment.get("JPY_SESSION_NAME", "")
    return "" if path.endswith("/") else path


def short_command(name: str, words: Sequence[str]) -> str:
    """Name a process by its program; Python of any version by its script or module too. Never by more.

    Args:
        name: the process's name, used where there is no command line.
        words: its command line.
    """
    program = PurePath(words[0]).name if words else ""
    if not program.lower().startswith(("python", "pypy")):
        return program or name
    program = program.lower().rstrip("0123456789.")
    rest = iter(words[1:])
    for word in rest:
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, None)
        elif word == "-m":
            module = next(rest, "")
            return _under_a_policy(rest) if module == __name__.partition(".")[0] else f"{program} -m {module}".rstrip()
        elif word == "-c":
            return ISOLATED if CALLS in next(rest, "") else program
        elif not word.startswith("-"):
            script = PurePath(word).name
            return _under_a_policy(rest) if script == LAUNCHER else f"{program} {script}"
    return program


def _under_a_policy(words: Iterator[str]) -> str:
    """Name a program by the words of `tfgpu run "limit 40%" -- program_1.py` behind `tfgpu`; others by `tfgpu`."""
    command = next(words, "")
    if command != "run" or "--" not in words:  # which passes over the policy
        return f"{LAUNCHER} {command}".rstrip()
    name = short_command("", ["python", *words])
    return name if name == ISOLATED or name.startswith("python -m") else name.removeprefix("python ")
