"""This server's kernels by pid: their notebooks, and whether they are busy; and the board learns of each rename."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_core.utils import ensure_async

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.report import Report
from tfgpu_magic.ground.rows import Notebook
from tfgpu_magic.machine.board.report_files import ReportFile
from tfgpu_magic.machine.owners.pids import without_vscode_suffix
from tfgpu_magic.server.job_thread import JobThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

LONGEST_PATH = 10_000
"""Characters of a path; a longer one leads to no file, and is not sent to every page."""
MOST_SESSIONS = 20
"""How many sessions of a kernel are named, each in at most `LONGEST_SESSION_NAME` characters."""
LONGEST_SESSION_NAME = 200
MOST_NAMES = 500
"""How many renamed notebooks have their present names in the server's report, the last ones."""
SESSIONS_EVERY = 2.0
"""Seconds after which sessions are listed again, to find renamed notebooks; for a new kernel they are at once."""
_ACTIONS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"
"""The events in which Jupyter Server tells that it has started, restarted or shut down a kernel."""


class Kernels:
    """The kernels of one server.

    Args:
        kernel_manager: Jupyter Server's manager of many kernels.
        session_manager: Jupyter Server's manager of sessions.
        events: Jupyter Server's event logger, which tells of a kernel before it can have run a cell.
    """

    def __init__(self, kernel_manager: Any, session_manager: Any, events: Any) -> None:
        self._kernels = kernel_manager
        self._sessions = session_manager
        self._events = events
        self._cells: dict[tuple[str, int], _Cells] = {}
        events.add_listener(schema_id=_ACTIONS, listener=self._changed)
        self._known: dict[str, list[Mapping[str, Any]]] = {}
        self._asked: frozenset[str] = frozenset()
        self._asked_at = float("-inf")

    async def notebooks(self) -> dict[int, Notebook]:
        """Return what is known of every kernel, by the pid of the process that this server has started for it.

        A gateway's kernels, which may be processes of this machine all the same, have numbers below 0.
        """
        kernels, pids = self._follow()
        sessions = await self._sessions_of(frozenset(pids))
        cells = self._cells
        found = {
            pid: _notebook(one, kernels[one], sessions.get(one, []), cells.get((one, pid))) for one, pid in pids.items()
        }
        elsewhere = [one for one, kernel in kernels.items() if not _is_local(kernel)]
        kept = self._stored_sessions() if elsewhere else {}
        remote = (_notebook(one, kernels[one], kept.get(one, [])) for one in elsewhere)
        return found | {-number: notebook for number, notebook in enumerate(remote, start=1)}

    async def is_unchanged(self, seen: Notebook, pid: int) -> bool:
        """Return whether a kernel is idle, and nothing has come to it since it was seen.

        Args:
            seen: what was known of it.
            pid: its process.
        """
        return seen.state == "idle" and (await self.notebooks()).get(pid) == seen

    async def shut_down(self, kernel: str) -> None:
        """Shut a kernel down, whatever it does."""
        await ensure_async(self._kernels.shutdown_kernel(kernel))

    def close(self) -> None:
        """Follow no kernel any longer."""
        self._events.remove_listener(schema_id=_ACTIONS, listener=self._changed)
        while self._cells:
            self._cells.popitem()[1].close()

    async def _changed(self, **_: object) -> None:
        self._follow()

    def _follow(self) -> tuple[dict[str, Any], dict[str, int]]:
        """Follow the cells of each process that this server has started for a kernel; return all kernels, and these."""
        kernels = {kernel_id: self._kernels.get_kernel(kernel_id) for kernel_id in self._kernels.list_kernel_ids()}
        pids = {kernel_id: pid for kernel_id, kernel in kernels.items() if (pid := _pid(kernel)) is not None}
        for gone in self._cells.keys() - pids.items():
            self._cells.pop(gone).close()
        for one, pid in pids.items() - self._cells.keys():
            self._cells[one, pid] = _Cells(kernels[one])
        return kernels, pids

    async def _sessions_of(self, kernels: frozenset[str]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return the sessions of each kernel, notebooks and then others, the oldest first. A gateway is not asked."""
        now = time.monotonic()
        if kernels and (kernels != self._asked or now - self._asked_at > SESSIONS_EVERY):
            self._asked, self._asked_at = kernels, now
            listed = await ensure_async(self._sessions.list_sessions())
            self._known = _by_kernel(listed, lambda session: (session.get("kernel") or {}).get("id"))
        return self._known

    def _stored_sessions(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return the same as the server has written it down, for which its manager would ask a gateway."""
        database = getattr(self._sessions, "connection", None)
        if not isinstance(database, sqlite3.Connection):
            return {}
        with contextlib.suppress(sqlite3.Error):  # it has no session yet
            rows = database.execute("SELECT kernel_id, path, name, type FROM session").fetchall()
            return _by_kernel([dict(row) for row in rows], lambda session: session["kernel_id"])
        return {}


class _Cells:
    """The cells of a kernel's process, as it tells of them: to its server, the last message of any shell is its state.

    Attributes:
        shells: those that run a cell, of which each runs one at a time: its subshells, and None. Should the end of one
            be lost, that of the shell's next one settles it.
    """

    def __init__(self, kernel: Any) -> None:
        self.shells: set[str | None] = set()
        self._session, self._stream = kernel.session.clone(), kernel.connect_iopub()  # a client may share the kernel's
        self._stream.socket.unsubscribe(b"")
        self._stream.socket.subscribe(b"kernel")  # by which ipykernel, which has subshells, begins what is no output
        self._stream.on_recv(self._note_message)
        self.close = self._stream.close

    def _note_message(self, frames: list[bytes]) -> None:
        message = self._session.deserialize(self._session.feed_identities(frames)[1], content=False)
        asked = message["parent_header"]
        if (message["msg_type"], asked.get("msg_type")) == ("status", "execute_request"):
            busy = self._session.unpack(message["content"])["execution_state"] == "busy"
            (self.shells.add if busy else self.shells.discard)(asked.get("subshell_id"))


def _by_kernel(
    listed: Iterable[Mapping[str, Any]], kernel: Callable[[Mapping[str, Any]], str | None]
) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for session in sorted(listed, key=lambda session: session.get("type") != "notebook"):
        if one := kernel(session):
            found.setdefault(one, []).append(session)
    return found


class Renames:
    """The renames of one server's notebooks. Nothing is asked in between: Jupyter tells its sessions of each.

    Args:
        session_manager: Jupyter Server's manager of sessions, whose `update_session` is wrapped.
    """

    def __init__(self, session_manager: Any) -> None:
        self._worker = JobThread()  # a home of NFS, or a directory of users, may hang
        self._names: dict[str, str] = {}
        self._report_file = ReportFile()
        update = session_manager.update_session

        async def updated(session_id: str, **changes: Any) -> None:
            await ensure_async(update(session_id, **changes))
            with contextlib.suppress(Exception):  # managers can be of any make, and a rename must go on
                session = await ensure_async(session_manager.get_session(session_id=session_id))
                if session["type"] == "notebook":
                    folder = session_manager.kernel_manager.cwd_for_path(session["path"])
                    path = PurePath(folder, PurePath(session["path"]).name)  # as a kernel gets it at its start
                    self._worker.do(partial(self._post, session["kernel"]["id"], str(path)))

        session_manager.update_session = updated
        self._undo: Callable[[], None] = lambda: setattr(session_manager, "update_session", update)

    def close(self) -> None:
        """Follow them no longer."""
        self._undo()
        self._worker.close(self._report_file.close)

    def _post(self, kernel: str, path: str) -> None:
        self._names = dict([*self._names.items(), (kernel, path)][-MOST_NAMES:])
        with contextlib.suppress(MonitorError, OSError):
            self._report_file.post(Report(pid=os.getpid(), summary="", names=self._names))


def _pid(kernel: Any) -> int | None:
    """Return the pid of a kernel; None of a remote or dead one, whose number may be another process's here."""
    provisioner = getattr(kernel, "provisioner", None)
    pid = provisioner.pid if isinstance(provisioner, LocalProvisioner) and provisioner.has_process else None
    return pid if isinstance(pid, int) and pid > 0 else None


def _is_local(kernel: Any) -> bool:
    return isinstance(getattr(kernel, "provisioner", None), LocalProvisioner)


def _notebook(
    kernel_id: str, kernel: Any, sessions: Sequence[Mapping[str, Any]], cells: _Cells | None = None
) -> Notebook:
    # A user who may start kernels chooses path and name freely, and a kernel its own state.
    active = getattr(kernel, "last_activity", None)
    state = "busy" if cells and cells.shells else str(getattr(kernel, "execution_state", None) or "")
    session, *others = sessions or [{}]
    path, name = (str(session.get(key) or "") for key in ("path", "name"))
    if session.get("type") != "notebook":  # a console's path is not a file that could be opened
        path, name = "", name or path or f"{getattr(kernel, 'kernel_name', 'kernel')} {kernel_id[:8]}"
    elif len(path) > LONGEST_PATH:
        path, name = "", path[-LONGEST_PATH:]
    elif (clean := without_vscode_suffix(path)) != path:  # where VS Code has its file, this server does not know
        path, name = "", PurePath(clean).name
    elif PurePath(path).suffix:  # a rename may change the path alone
        name = ""
    return Notebook(
        name=name,
        path=path,
        kernel=kernel_id,
        state=state if state.isalpha() and len(state) < 20 else "",
        active=active.timestamp() if active is not None else None,
        also=tuple(_session_name(other)[-LONGEST_SESSION_NAME:] for other in others[:MOST_SESSIONS]),
    )


def _session_name(session: Mapping[str, Any]) -> str:
    """Return a session's name: a notebook's path; of a console, whose path is not a file's, its name."""
    keys = ("path", "name") if session.get("type") == "notebook" else ("name", "path")
    return next((str(session[key]) for key in keys if session.get(key)), "")
