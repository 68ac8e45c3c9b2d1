"""Finds whose a pid is: this notebook's, mine, or another user's, of whom nothing but the user name is read."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

from tfgpu_magic.ground.bounded import run_within
from tfgpu_magic.ground.phrases import clean
from tfgpu_magic.ground.process_kind import SIMULATED, noun
from tfgpu_magic.ground.rows import UNKNOWN, Notebook, Owner, Who
from tfgpu_magic.machine.owners.pids import (
    ISOLATED,
    ancestors,
    command_name,
    is_alive,
    kernel_of,
    notebook_of_kernel,
    ownership,
    start_time,
    zombie_name,
)
from tfgpu_magic.machine.owners.users import Users, effective_user, user_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tfgpu_magic.ground.report import Report

FURTHER = "further processes"
"""What the smallest of my processes are called together, where they are too many to be told apart."""
CONTAINED = "a process in a container of yours"
"""What a process is called that counts for this user, but is of another one in a rootless container."""
OTHERS, ENDED = "others", "a process that ended"

_LONGEST_COMMAND = 24  # characters behind a notebook's name, which is cut last

READ_TIMEOUT = 0.5
"""Seconds to wait for what is read of a process: one that hangs in the driver does not let itself be read."""

_FIRST = "pid:[4026531836]"  # PROC_PID_INIT_INO of Linux's proc_ns.h


def notebook_of(report: Report) -> Notebook:
    """Return what a kernel's report has of its notebook."""
    state = "" if report.busy is None else "busy" if report.busy else "idle"
    return Notebook(path=report.notebook, state=state, active=report.active)


def merge_notebooks(reports: Iterable[Report], served: Mapping[int, Notebook]) -> dict[int, Notebook]:
    """Join what kernels report of themselves and what their server has of them, by pid.

    Names and paths are the server's. Since when a kernel is idle is the kernel's own figure: a server counts whatever
    passes for activity, a page that connects too. A kernel is busy if either reports it: one that runs no cell may be.

    Args:
        reports: the kernels' reports.
        served: what a server has of its kernels, by pid.
    """
    reports = tuple(reports)
    known = {one.pid: notebook_of(one) for one in reports}
    started = {one.kernel: one.pid for one in reports if one.kernel}
    for process, one in served.items():
        pid = started.get(
            one.kernel, process
        )  # a server knows the process that it started: the kernel's, or a wrapper's
        own = known.get(pid)
        if own is not None and own.state and one.state in ("idle", "busy", ""):
            state = "busy" if "busy" in (own.state, one.state) else own.state
            known[pid] = replace(one, state=state, active=own.active)
        else:
            known[pid] = one
    return known


@dataclass(frozen=True, slots=True)
class _ProcessRecord:
    """What was read of a process: its name, its ancestors, whether it is this user's and may have the driver open.

    And the path of the notebook whose kernel it, or what started it, once was; that kernel's pid and its id, as long as
    it is among them.
    """

    began: int
    parents: tuple[int, ...] = ()
    command: str = ""
    notebook: str = ""
    kernel: int = 0
    kernel_id: str = ""
    other_user: str = ""
    drives: bool = False


@dataclass(frozen=True, slots=True)
class _CachedRecord:
    """What was read of a process, its name, and when it was last verified to be the same (the monotonic clock)."""

    read: _ProcessRecord
    text: str
    at: float


_hanging: dict[int, list[threading.Thread]] = {}
"""The threads that hang as they read a process, by its pid, of all finders: another one would only hang beside them."""


class Owners:
    """A finder of owners, which remembers what it read of each process, by its pid and the time when it began.

    Args:
        kernel: the pid that is "this notebook"; by default this process, and 0 is none.
        this: what that is called: ``this session``; by default as people call this process.
        trust: seconds in which a process is called what it was: to read that takes longer than to see that it is the
            same.
    """

    def __init__(self, kernel: int | None = None, *, this: str = "", trust: float = 0.0) -> None:
        self._kernel = os.getpid() if kernel is None else kernel
        self.this = this or f"this {noun()}"
        self._trust = trust
        self._seen: dict[int, _CachedRecord] = {}
        self._names: Mapping[str, str] = {}
        self._users = Users()

    def find(
        self,
        pids: Iterable[int],
        notebooks: Mapping[int, Notebook] | None = None,
        here: Collection[int] = (),
        names: Mapping[str, str] | None = None,
        users: Mapping[int, int] | None = None,
    ) -> dict[int, Owner]:
        """Find the owner of every pid.

        Where none of them is, or was, a process of this machine that has the driver open, they belong to another pid
        namespace (the host's, seen from a container), and all owners are unknown rather than gone.

        Args:
            pids: the process ids.
            notebooks: what is known of kernels, by pid.
            here: further pids, of processes that are known to be here, though they may not have the driver open.
            names: what renamed notebooks are called, by their kernels' ids.
            users: the numbers of processes' users, as a collector has read them, by pid. Of another user's nothing else
                is read; and /proc, mounted with hidepid, may hide it.
        """
        self._names = names or {}
        before, self._seen = self._seen, {}
        own, others = os.geteuid(), users or {}
        owners = {
            pid: self._find(pid, before.get(pid), notebooks or {})
            if (user := others.get(pid, own)) == own
            else Owner(pid=pid, who="other", text=self._users.name(user))
            for pid in pids
            if pid and pid not in here
        }
        if before.keys().isdisjoint(owners) and _may_be_foreign(owner.who for owner in owners.values()):
            owners = {pid: Owner(pid=pid, who="unknown", text=OTHERS) for pid in owners}
        known = {pid: self._find(pid, before.get(pid), notebooks or {}, reports=True) for pid in here}
        return _with_distinct_names({**owners, **known})

    def _find(
        self, pid: int, before: _CachedRecord | None, notebooks: Mapping[int, Notebook], *, reports: bool = False
    ) -> Owner:
        if pid < 0:
            return Owner(pid=pid, who="mine", text=FURTHER)
        now = time.monotonic()
        read: _ProcessRecord | None
        if before and now - before.at < self._trust and start_time(pid) == before.read.began:
            read, now = before.read, before.at
        else:
            hanging = _hanging.setdefault(pid, [])
            read = run_within(READ_TIMEOUT, partial(_read_process, pid, before.read if before else None), hanging)
            if hanging:
                return self._unreadable_owner(pid, before, notebooks)
            _hanging.pop(pid, None)
            if read and not (read.other_user or read.drives or reports):  # the pid means another process, or is reused
                return Owner(pid=pid, who="gone", text=ENDED)
        if read is None:
            if name := zombie_name(pid):  # a driver may still be busy with it
                return Owner(pid=pid, who="mine", text=f"{before.text if before else name}, ended")
            if is_alive(pid):  # and /proc, mounted with hidepid, hides it
                return Owner(pid=pid, who="other", text="another user")
            if before is None:
                return Owner(pid=pid, who="gone", text=ENDED)
            self._seen[pid] = before
            return Owner(pid=pid, who="gone", text=f"{before.text}, ended")
        owner = self._name(pid, read, notebooks)
        self._seen[pid] = _CachedRecord(read, owner.text, now)
        return owner

    def _unreadable_owner(self, pid: int, before: _CachedRecord | None, notebooks: Mapping[int, Notebook]) -> Owner:
        """Return the owner of a process that cannot be read, by what was read before."""
        if before is None:
            return Owner(pid=pid, who="unknown", text="a process that does not answer", silent=True)
        self._seen[pid] = before
        owner = self._name(pid, before.read, notebooks)
        text, child = (one and f"{one}, does not answer" for one in (owner.text, owner.child))
        return replace(owner, text=text, child=child)

    def _name(self, pid: int, read: _ProcessRecord, notebooks: Mapping[int, Notebook]) -> Owner:
        if read.other_user:  # nothing is read of it, and so nothing offered for it
            return Owner(pid=pid, who="mine" if read.drives else "other", text=read.other_user)
        family = (pid, *read.parents)
        call = read.command == ISOLATED  # a call has a report of its own too, and is no notebook
        reported = [one for one in family[call:] if one in notebooks]
        # What a notebook runs with nbclient or papermill is a kernel without a name.
        kernel = next((one for one in reported if notebooks[one].title), next(iter(reported), 0))
        known = notebooks.get(kernel)
        if read.kernel and kernel not in family[: family.index(read.kernel) + 1]:  # nearer than what is known
            kernel = read.kernel
            if known is None or known.kernel != read.kernel_id:  # else the server knows its wrapper's pid
                named = Notebook(path=self._names.get(read.kernel_id, read.notebook), state=UNKNOWN)
                served = (one for one in notebooks.values() if one.kernel == read.kernel_id)
                known = next(served, named)  # it may be started by a gateway, or in a container
        who: Who = "this" if self._kernel in family else "mine"
        name = self.this if who == "this" else known.title if known else ""
        text = name or read.command
        # The variable is inherited by all that a kernel starts, and leaves behind.
        if who == "mine" and not kernel and read.notebook:
            text = f"{read.command}, started from {PurePath(read.notebook).name}"
        kernel = self._kernel if who == "this" else kernel or pid
        child = "" if pid == kernel else clean(read.command, longest=_LONGEST_COMMAND) or "?"
        if name and child:
            text = f"{name}'s {child}"
        return Owner(
            pid=pid, who=who, text=text, child=child, notebook=known, kernel=kernel, call=call, began=read.began
        )


def _may_be_foreign(found: Iterable[Who]) -> bool:
    """Return whether the pids may be of another namespace: none names a living process of this one."""
    try:
        first = os.readlink("/proc/self/ns/pid") == _FIRST and SIMULATED not in os.environ
    except OSError:
        first = False
    return set(found) == {"gone"} and not first


def _read_process(pid: int, before: _ProcessRecord | None) -> _ProcessRecord | None:
    """Read a process; None where it has ended, or is hidden.

    Of one that was read before only that is read again which changes: it may run another program, and set its name.
    """
    start = start_time(pid)
    if start is None:
        return None
    try:
        if before and before.began == start and (not before.kernel or is_alive(before.kernel)):
            return before if before.other_user else replace(before, command=command_name(pid))
        who = ownership(pid)
        if who == "other":
            mine = (user := effective_user(pid)) == os.getuid()
            return _ProcessRecord(start, other_user=CONTAINED if mine else user_name(user), drives=mine)
        line, path = ancestors(pid), notebook_of_kernel(pid)
        kernel, its = kernel_of(line)
        return _ProcessRecord(start, line[1:], command_name(pid), path, kernel, its, drives=who == "mine")
    except OSError:
        return None


def _with_distinct_names(owners: dict[int, Owner]) -> dict[int, Owner]:
    """Name notebooks of the same file name in different folders by as much of their paths as makes them distinct."""
    paths = {PurePath(owner.notebook.path).parts for owner in owners.values() if owner.notebook and owner.notebook.path}
    names = Counter(parts[-1] for parts in paths)
    ends = Counter(parts[-n:] for parts in paths if names[parts[-1]] > 1 for n in range(2, len(parts) + 1))
    return {pid: _with_folder(owner, ends) for pid, owner in owners.items()} if ends else owners


def _with_folder(owner: Owner, ends: Mapping[tuple[str, ...], int]) -> Owner:
    """Name an owner by its path's shortest end that no other path has; `ends` counts those of paths that end alike."""
    path = PurePath(owner.notebook.path) if owner.notebook else PurePath()
    if owner.who != "mine" or path.parts[-2:] not in ends:
        return owner
    length = next((n for n in range(2, len(path.parts)) if ends[path.parts[-n:]] == 1), None)
    shown = PurePath(*path.parts[-length:]) if length else path
    named = owner.text.startswith(path.name)
    return replace(owner, text=f"{shown}{owner.text.removeprefix(path.name)}") if named else owner
