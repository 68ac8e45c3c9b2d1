"""What the system tells of processes by their pids: whether one lives, whose it is, what it is called, what it opens.

Of another user's process nothing but its user and when it began is read. Sources: proc_pid_stat(5), proc_pid_status(5).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Literal

from tfgpu_magic.ground.process_kind import CALLS, SIMULATED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

ISOLATED = "isolated call"
"""The name of the processes of isolated cells and calls."""
LAUNCHER = "tfgpu"
"""The command under which programs run; they are named by themselves, and not by it."""

_COMPUTES = ("/dev/nvidia-uvm", "/dev/dxg")
"""Prefixes of the files that a process has open once it has started CUDA; who reads figures opens others."""
_DEVICES = ("/dev/nvidia", "/dev/nvhost", "/dev/nvmap", "/dev/nvgpu", "/dev/dxg")
"""Prefixes of the files by which the driver is reached: on servers and desktops, on Jetson, on WSL."""


def is_alive(pid: int) -> bool:
    """Return whether a process with this pid exists here, of whatever user."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def missing(pids: Iterable[int]) -> frozenset[int]:
    """Return the pids that do not exist here: a driver may list pids of another namespace."""
    return frozenset(pid for pid in set(pids) if pid > 0 and not is_alive(pid))


def start_time(pid: int) -> int | None:
    """Return when a process began, in the system's ticks since its start; None if it has ended.

    A zombie has ended: its parent may never wait for it.
    """
    try:
        state, *rest = _read_stat(pid)
    except OSError:
        return None
    return None if state in "ZX" else int(rest[18])


def ancestors(pid: int) -> tuple[int, ...]:
    """Return the pids of a process and of its ancestors, the nearest first."""
    found: list[int] = []
    while pid > 0 and pid not in found:
        found.append(pid)
        try:
            pid = int(_read_stat(pid)[1])
        except OSError:
            break
    return tuple(found)


def descendants(pid: int) -> set[int]:
    """Return the pids of all descendants of a process."""
    if start_time(pid) and not os.path.exists(f"/proc/{pid}/task/{pid}/children"):  # no `CONFIG_PROC_CHILDREN`
        others = (int(name) for name in os.listdir("/proc") if name.isdigit())
        return {other for other in others if pid in ancestors(other)[1:]}
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()) - found:
            found.add(child)
            waiting.append(child)
    return found


def _children(pid: int) -> set[int]:
    """Return the pids of a process's children, which any of its threads may have started."""
    found: set[int] = set()
    with contextlib.suppress(OSError):  # the process has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):  # a thread has ended
                found.update(map(int, read_text(pid, f"task/{thread}/children").split()))
    return found


def family(pid: int | None = None) -> frozenset[int]:
    """Return the pids of a process, by default this one, and of its ancestors."""
    return frozenset(ancestors(pid or os.getpid()))


def user_of(pid: int) -> int:
    """Return the number of a process's user.

    Raises:
        OSError: it has ended, or is hidden.
    """
    return int(read_text(pid, "status").partition("\nUid:")[2].split(maxsplit=1)[0])


def ownership(pid: int) -> Literal["mine", "other", "gone"]:
    """Return whose process a driver means by a pid; a process of this user without an open driver has ended.

    The pid then means a process of another namespace, or was given anew.
    """
    try:
        if user_of(pid) != os.getuid():  # checked first: root could read more of other users, and does not
            return "other"
    except OSError:
        return "other" if is_alive(pid) else "gone"  # /proc, mounted with hidepid, hides it
    return "gone" if opens_driver(pid) is False else "mine"


def command_name(pid: int) -> str:
    """Return the name of this user's process, as `short_command`.

    Raises:
        OSError: it has ended.
    """
    name = read_text(pid, "comm").strip()
    try:
        line = read_text(pid, "cmdline").rstrip("\0")
    except PermissionError:
        return name
    return short_command(name, line.split("\0" if "\0" in line else " "))  # spaces: it has set its title


def notebook_of_kernel(pid: int) -> str:
    """Return the path of a kernel's notebook: Jupyter Server gives it to each kernel that it starts.

    Raises:
        OSError: it has ended.
    """
    try:
        variables = (variable.partition("=") for variable in read_text(pid, "environ").split("\0"))
        return notebook_path({name: value for name, _, value in variables})
    except PermissionError:
        return ""


def kernel_of(line: Sequence[int]) -> tuple[int, str]:
    """Return the pid and the id of the nearest kernel of a process and its ancestors; 0 where there is none.

    A child that was forked has its parent's command line, and its session, which Jupyter begins with each kernel: one
    that outlives its kernel, or was forked off twice, is none. Ancestors of other users are not read.

    Args:
        line: the process and its ancestors, the nearest first.

    Raises:
        OSError: it has ended.
    """
    own, above = _command_line(line[0]), line[1:]
    for pid in line:
        parent, above = next(iter(above), 0), above[1:]
        words = _command_line(parent) if parent and _is_own(parent) else []
        if (found := kernel_id(own)) and words != own:
            first = int(_read_stat(pid)[3])
            stray = first not in line and _is_own(first) and kernel_id(_command_line(first)) == found
            return (pid, found) if is_alive(first) and not stray else (0, "")
        if not words:
            break
        own = words
    return 0, ""


def _is_own(pid: int) -> bool:
    """Return whether a process is this user's; one that has ended, or that /proc hides, is not."""
    with contextlib.suppress(OSError):
        return user_of(pid) == os.getuid()
    return False


def _command_line(pid: int) -> list[str]:
    try:
        return read_text(pid, "cmdline").split("\0")
    except PermissionError:
        return []


def kernel_id(words: Iterable[str]) -> str:
    """Return a kernel's id from its command line, which names its connection file; empty of what is no kernel."""
    return next((_name(file)[len("kernel-") : -len(".json")] for file in _connection_files(words)), "")


def connection_file(pid: int) -> Path | None:
    """Return the connection file of a kernel of this user's; None of any other process, such as a kernel's child."""
    with contextlib.suppress(OSError):
        if _is_own(pid) and kernel_of(ancestors(pid))[0] == pid:
            from pathlib import Path  # 4 ms of a collector's start, which needs none

            return next((Path(file) for file in _connection_files(_command_line(pid))), None)
    return None


def _connection_files(words: Iterable[str]) -> Iterator[str]:
    """Yield the paths that a command line names as connection files.

    Source: jupyter_client calls the file ``kernel-ID.json``, and every kernel gets its path.
    """
    files = (word.rpartition("=")[2] for word in words if word.endswith(".json"))
    return (file for file in files if _name(file).startswith("kernel-"))


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def notebook_path(environment: Mapping[str, str]) -> str:
    """Return the path of a kernel's notebook from the variable that Jupyter Server sets; empty where it sets none.

    A session without a name has the path of a folder, which ends with a slash.
    """
    path = environment.get("JPY_SESSION_NAME", "")
    return "" if path.endswith("/") else without_vscode_suffix(path)


def without_vscode_suffix(path: str) -> str:
    """Return a notebook's path without what VS Code adds to it in a session: ``train-jvsc-0a1b-...ipynb``."""
    return re.sub(r"-jvsc-[0-9a-f-]+(?=\.ipynb$)", "", path)


def short_command(name: str, words: Sequence[str]) -> str:
    """Name a process by its program; Python of any version by its script or module too. Never by more.

    Args:
        name: the process's name, used where there is no command line.
        words: its command line.
    """
    program = _name(words[0]) if words else ""
    if not program.lower().startswith(("python", "pypy")):
        return program or name
    program = program.lower().rstrip("0123456789.")
    rest = iter(words[1:])
    for word in rest:
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, None)
        elif word == "-m":
            module = next(rest, "")
            return _name_under_run(rest) if module == __name__.partition(".")[0] else f"{program} -m {module}".rstrip()
        elif word == "-c":
            return ISOLATED if CALLS in next(rest, "") else program
        elif not word.startswith("-"):
            script = _name(word)
            return _name_under_run(rest) if script == LAUNCHER else f"{program} {script}"
    return program


def _name_under_run(words: Iterator[str]) -> str:
    """Name a program by the words of `tfgpu run "limit 40%" -- program_1.py` behind `tfgpu`; others by `tfgpu`."""
    command = next(words, "")
    if command != "run" or "--" not in words:  # which passes over the policy
        return f"{LAUNCHER} {command}".rstrip()
    name = short_command("", ["python", *words])
    return name if name == ISOLATED or name.startswith("python -m") else name.removeprefix("python ")


def zombie_name(pid: int) -> str:
    """Return the name of this user's process if it has ended and was not reaped; else an empty text."""
    with contextlib.suppress(OSError):
        return read_text(pid, "comm").strip() if _is_own(pid) and start_time(pid) is None else ""
    return ""


def is_call(pid: int) -> bool:
    """Return whether a process of this user is an isolated call, and not the fork server.

    Raises:
        OSError: it has ended.
    """
    _, *parents = ancestors(pid)
    return command_name(pid) == ISOLATED and bool(parents) and command_name(parents[0]) == ISOLATED


def calling_pid() -> int | None:
    """Return the pid of the kernel, session or program that this isolated call was made in; None if that has ended."""
    return next((pid for pid in ancestors(os.getpid()) if command_name(pid) != ISOLATED), None)


def find_unlisted(known: Collection[int]) -> list[int]:
    """Return this user's processes that have started CUDA, without the known ones and their descendants."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):  # it has ended
            other = not _is_own(pid) or read_text(pid, "comm").startswith("tfgpu-")  # a collector opens it, too
            found += [pid] if not other and opens_driver(pid, _COMPUTES) and family(pid).isdisjoint(known) else []
    return sorted(found)


def opens_driver(pid: int, devices: tuple[str, ...] = ()) -> bool | None:
    """Return whether a process of this user has a file of the driver open or mapped; this takes some 100 µs.

    One that has not holds no GPU memory, and its listed pid means another.

    Args:
        pid: the process id.
        devices: prefixes of the files, where only some count.

    Returns:
        Whether it has; None where that cannot be read.
    """
    machine = os.environ.get(SIMULATED)
    files = devices or _DEVICES if machine is None else (os.path.realpath(machine),)
    folder = f"/proc/{pid}/fd"
    try:
        if any(_link_target(f"{folder}/{name}").startswith(files) for name in os.listdir(folder)):
            return True
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as maps:
            return any(line[line.find("/") :].startswith(files) for line in maps if "/" in line)
    except OSError:
        return None


def _link_target(link: str) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:  # closed meanwhile
        return ""


def read_text(pid: int | Literal["self"], name: str) -> str:
    """Return the text of a file of a process, such as ``/proc/PID/status``; bytes that are no UTF-8 are surrogates."""
    with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _read_stat(pid: int) -> list[str]:
    return read_text(pid, "stat").rpartition(")")[2].split()


def notebook_of_shell(shell: Any) -> str:
    """Return a kernel's notebook's path, if VS Code or Jupyter Server passes it to the kernel; else an empty text."""
    code = shell.user_ns.get("__vsc_ipynb_file__")
    if isinstance(code, str) and code:
        return code
    # All that a kernel starts inherits the variable: sessions, and kernels that nbclient and papermill start.
    return notebook_path(os.environ) if kernel_id(sys.orig_argv) else ""
