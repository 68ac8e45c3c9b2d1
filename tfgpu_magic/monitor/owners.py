"""Whose a pid is: this notebook's, mine, or another user's, of whom nothing but the user name is read."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

import psutil

from tfgpu_magic.monitor.driver_users import opens_driver
from tfgpu_magic.monitor.process_names import ISOLATED, command, notebook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfgpu_magic.monitor.report import Report

Who = Literal["this", "mine", "other", "gone", "unknown"]
"""This kernel and its children; my other processes; other users'; ended; not a pid of this machine."""


_SIMULATED = "TFGPU_SIMGPU"
SIMULATED_USER = "TFGPU_SIMGPU_USER"
"""The variable with the name of other users on a simulated machine; without it, it is the system's."""

_FIRST = "pid:[4026531836]"  # PROC_PID_INIT_INO of Linux's proc_ns.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """What somebody who knows says of a kernel: its server, or the kernel itself.

    Attributes:
        name: what to call it, such as ``train.ipynb``; empty when that is not known.
        path: its path; on the kernel's server where that said it, else in the file system; empty when not known.
        kernel: the kernel's id on the server that said it; empty where it was not a server.
        state: ``busy``, ``idle`` or what else Jupyter calls a kernel's state; empty when not known.
        active: when it was last active, in seconds since the epoch; None when not known.
        also: what other documents and consoles share the kernel, by path or name.
    """

    name: str = ""
    path: str = ""
    kernel: str = ""
    state: str = ""
    active: float | None = None
    also: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What to call it; empty when nothing is known."""
        return self.name or PurePath(self.path).name


def notebook_of(report: Report) -> Notebook:
    """What a kernel says of its notebook."""
    state = "" if report.busy is None else "busy" if report.busy else "idle"
    return Notebook(path=report.notebook, state=state, active=report.active)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who is behind a pid.

    Attributes:
        pid: the process id.
        who: what it is to the one who looks.
        text: how people name it; as the process wrote it, so a view must escape it.
        notebook: what is known of the kernel that this process is, or is a child of; None if it is none.
        kernel: the pid of that kernel; its own where it is no kernel's child.
        call: whether it is one of our isolated cells and calls, which can be stopped without its kernel.
    """

    pid: int
    who: Who
    text: str
    notebook: Notebook | None = None
    kernel: int | None = None
    call: bool = False


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of a process of mine: what it is called, its ancestors, its notebook's path, if it has a GPU."""

    born: float
    parents: tuple[int, ...] = ()
    command: str = ""
    notebook: str = ""
    stranger: str = ""
    drives: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a process was called, and when it was last known to be itself (the monotonic clock)."""

    read: _Read
    text: str
    at: float


class Owners:
    """Finds owners, and remembers what it read of each process: a pid and the time when it was created.

    Args:
        kernel: the pid that is "this notebook"; by default the process that asks, and 0 is none.
        trust: seconds in which a pid that is there is taken for the process that it was: to read when it was created
            takes 40 µs, and to see that it is there 2.
    """

    def __init__(self, kernel: int | None = None, *, trust: float = 0.0) -> None:
        self._kernel = os.getpid() if kernel is None else kernel
        self._trust = trust
        self._seen: dict[int, _Seen] = {}

    def find(self, pids: Iterable[int], notebooks: Mapping[int, Notebook] | None = None) -> dict[int, Owner]:
        """Find the owner of every pid.

        Where not one of them is, or was, a process of this machine that has the driver open, they are another pid
        namespace's (the host's, seen from a container), and all owners are unknown rather than gone.

        Args:
            pids: the process ids.
            notebooks: what is known of kernels, by pid.
        """
        before, self._seen = self._seen, {}
        owners = {pid: self._find(pid, before.get(pid), notebooks or {}) for pid in pids}
        if before.keys().isdisjoint(owners) and _foreign(owner.who for owner in owners.values()):
            return {pid: Owner(pid=pid, who="unknown", text="others") for pid in owners}
        return _told_apart(owners)

    def _find(self, pid: int, before: _Seen | None, notebooks: Mapping[int, Notebook]) -> Owner:
        now = time.monotonic()
        try:
            if before and now - before.at < self._trust and os.path.exists(f"/proc/{pid}"):  # noqa: PTH110  1000 a look
                read, now = before.read, before.at
            else:
                process = psutil.Process(pid)
                born = process.create_time()
                read = _again(process, before.read) if before and before.read.born == born else _read(process, born)
                if not (read.stranger or read.drives):  # the number is another's here, or was before
                    return Owner(pid=pid, who="gone", text="a process that ended")
        except psutil.AccessDenied:
            return Owner(pid=pid, who="other", text="another user")
        except psutil.NoSuchProcess:
            if _hidden(pid):
                return Owner(pid=pid, who="other", text="another user")
            if before is None:
                return Owner(pid=pid, who="gone", text="a process that ended")
            self._seen[pid] = before
            return Owner(pid=pid, who="gone", text=f"{before.text}, ended")
        owner = self._name(pid, read, notebooks)
        self._seen[pid] = _Seen(read, owner.text, now)
        return owner

    def _name(self, pid: int, read: _Read, notebooks: Mapping[int, Notebook]) -> Owner:
        if read.stranger:
            return Owner(pid=pid, who="other", text=read.stranger)
        family = (pid, *read.parents)
        call = read.command == ISOLATED  # which reports of itself too, and is no notebook
        kernel = next((one for one in family[call:] if one in notebooks), pid)
        known = notebooks.get(kernel) or (Notebook(path=read.notebook) if read.notebook else None)
        if self._kernel in family:
            text = "this notebook" if pid == self._kernel else f"this notebook's {read.command}"
            return Owner(pid=pid, who="this", text=text, notebook=known, kernel=self._kernel, call=call)
        name = known.title if known else ""
        text = f"{name}'s {read.command}" if name and kernel != pid else name or read.command
        return Owner(pid=pid, who="mine", text=text, notebook=known, kernel=kernel, call=call)


def by_user(pids: Iterable[int]) -> dict[int, Owner]:
    """Tell mine from other users' and no more: none is named, and it takes a tenth of a millisecond for each of mine.

    Args:
        pids: the process ids; as for `Owners.find`, where none of them lives here all are unknown.
    """
    whose = {pid: _user(pid) for pid in pids}
    if _foreign(whose.values()):
        whose = dict.fromkeys(whose, "unknown")
    return {pid: Owner(pid=pid, who=who, text="") for pid, who in whose.items()}


def _user(pid: int) -> Who:
    try:
        user = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return "other" if _hidden(pid) else "gone"
    if user != os.getuid():
        return "other"
    return "gone" if opens_driver(pid) is False else "mine"


def _foreign(found: Iterable[Who]) -> bool:
    """Tell whether pids may be another namespace's: those that nobody knew before name nothing that lives here."""
    return set(found) == {"gone"} and not _all_known()


def _all_known() -> bool:
    """Tell whether every pid that the driver may list is a number here: in the first namespace there is no other."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST and _SIMULATED not in os.environ  # noqa: PTH115
    except OSError:
        return False


def _again(process: psutil.Process, before: _Read) -> _Read:
    """Read anew what changes: a program may become another one, and call itself what it likes."""
    return before if before.stranger else replace(before, command=command(process))


def _read(process: psutil.Process, born: float) -> _Read:
    if process.uids().real != os.getuid():  # asked first: root may read more of others, and does not
        return _Read(born, stranger=_user_name(process))
    parents = tuple(parent.pid for parent in process.parents())
    drives = opens_driver(process.pid) is not False
    return _Read(born, parents=parents, command=command(process), notebook=notebook(process), drives=drives)


def _user_name(process: psutil.Process) -> str:
    """Name a process's user; on a simulated machine, whose other users are not the system's, as that may name them."""
    simulated = os.environ.get(SIMULATED_USER) if _SIMULATED in os.environ else None
    return simulated or process.username()


def _told_apart(owners: dict[int, Owner]) -> dict[int, Owner]:
    """Name notebooks of the same file name in different folders with as much of their paths as tells them apart."""
    paths = {owner.notebook.path for owner in owners.values() if owner.notebook and owner.notebook.path}
    names = Counter(PurePath(path).name for path in paths)
    if not any(count > 1 for count in names.values()):
        return owners
    return {pid: _with_folder(owner, paths) for pid, owner in owners.items()}


def _with_folder(owner: Owner, paths: Iterable[str]) -> Owner:
    path = PurePath(owner.notebook.path) if owner.notebook else PurePath()
    others = [PurePath(other).parts for other in paths if other != str(path) and PurePath(other).name == path.name]
    if owner.who != "mine" or not others or not owner.text.startswith(path.name):
        return owner
    length = next((n for n in range(2, len(path.parts)) if path.parts[-n:] not in {o[-n:] for o in others}), None)
    shown = PurePath(*path.parts[-length:]) if length else path
    return replace(owner, text=str(shown) + owner.text.removeprefix(path.name))


def _hidden(pid: int) -> bool:
    """Tell a process that /proc hides (mounted with hidepid) from none: only to the first are signals forbidden."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False
