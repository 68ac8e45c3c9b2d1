"""Names processes: a kernel by its notebook's path, others by their programs, and never by their arguments."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

import psutil

from tfgpu_magic.probe import CALLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ISOLATED = "isolated call"
"""The name of the processes of isolated cells and calls."""

LAUNCHER = "tfgpu"
"""The command under which programs run; they are named by themselves, and not by it."""


def notebook(process: psutil.Process) -> str:
    """Return the path of a kernel's notebook: Jupyter Server gives it to each kernel that it starts."""
    try:
        return notebook_path(process.environ())
    except psutil.AccessDenied:
        return ""


def notebook_path(environment: Mapping[str, str]) -> str:
    """Return the path of a kernel's notebook from the variable that Jupyter Server sets; empty where it sets none.

    A session without a name has the path of a folder, which ends with a slash.
    """
    path = environment.get("JPY_SESSION_NAME", "")
    return "" if path.endswith("/") else path


def command(process: psutil.Process) -> str:
    """Return the name of a process, as `short_command`."""
    try:
        return short_command(process.name(), process.cmdline())
    except psutil.AccessDenied:
        return str(process.name())


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


def is_call(process: psutil.Process) -> bool:
    """Tell whether a process of this user is an isolated call, and not the fork server.

    Raises:
        psutil.Error: it has ended, or may not be read.
    """
    parent = process.parent()
    return command(process) == ISOLATED and parent is not None and command(parent) == ISOLATED
