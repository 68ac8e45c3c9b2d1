"""This server's kernels by pid: their notebooks' paths, and whether they are busy."""

from __future__ import annotations

import time
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_core.utils import ensure_async

from tfgpu_magic.monitor.owners import Notebook

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST_PATH = 10_000
"""Characters of a path; what is longer leads to no file, and is not sent every page."""
MOST_SESSIONS = 20
"""Sessions of a kernel that are named, and each in at most so many characters of that:"""
LONGEST_SESSION_NAME = 200
SESSIONS_EVERY = 2.0
"""Seconds after which sessions are listed again, so that a renamed notebook is seen; a new kernel is at once."""


class Kernels:
    """The kernels of one server.

    Args:
        kernel_manager: Jupyter Server's manager of many kernels.
        session_manager: Jupyter Server's manager of sessions.
    """

    def __init__(self, kernel_manager: Any, session_manager: Any) -> None:
        self._kernels = kernel_manager
        self._sessions = session_manager
        self._known: dict[str, list[Mapping[str, Any]]] = {}
        self._asked: frozenset[str] = frozenset()
        self._asked_at = float("-inf")

    async def notebooks(self) -> dict[int, Notebook]:
        """Say what is known of every kernel that is a process of this machine."""
        kernels = {kernel_id: self._kernels.get_kernel(kernel_id) for kernel_id in self._kernels.list_kernel_ids()}
        pids = {kernel_id: pid for kernel_id, kernel in kernels.items() if (pid := _pid(kernel)) is not None}
        sessions = await self._of(frozenset(pids))
        return {pid: _notebook(one, kernels[one], sessions.get(one, [])) for one, pid in pids.items()}

    async def _of(self, kernels: frozenset[str]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return the sessions of each kernel, notebooks and then others, the oldest first.

        A gateway is asked nothing: what it has are not this machine's.
        """
        now = time.monotonic()
        if kernels and (kernels != self._asked or now - self._asked_at > SESSIONS_EVERY):
            self._asked, self._asked_at = kernels, now
            listed = await ensure_async(self._sessions.list_sessions())
            self._known = {}
            for session in sorted(listed, key=lambda session: session.get("type") != "notebook"):
                if session.get("kernel"):
                    self._known.setdefault(session["kernel"]["id"], []).append(session)
        return self._known


def _pid(kernel: Any) -> int | None:
    """Return the pid of a kernel; None of one that runs elsewhere or has died, whose number may be anybody's here."""
    provisioner = getattr(kernel, "provisioner", None)
    pid = provisioner.pid if isinstance(provisioner, LocalProvisioner) and provisioner.has_process else None
    return pid if isinstance(pid, int) and pid > 0 else None


def _notebook(kernel_id: str, kernel: Any, sessions: Sequence[Mapping[str, Any]]) -> Notebook:
    # Whoever may start kernels chooses path and name, and a kernel says itself what its state is.
    active = getattr(kernel, "last_activity", None)
    state = str(getattr(kernel, "execution_state", None) or "")
    session, *others = sessions or [{}]
    path, name = (str(session.get(key) or "") for key in ("path", "name"))
    if session.get("type") != "notebook":  # a console's path is no file that could be opened
        path, name = "", name or path or f"{getattr(kernel, 'kernel_name', 'kernel')} {kernel_id[:8]}"
    elif len(path) > LONGEST_PATH:
        path, name = "", path[-LONGEST_PATH:]
    elif PurePath(path).suffix:  # a rename may change the path alone
        name = ""
    return Notebook(
        name=name,
        path=path,
        kernel=kernel_id,
        state=state if state.isalpha() and len(state) < 20 else "",
        active=active.timestamp() if active is not None else None,
        also=tuple(_called(other)[-LONGEST_SESSION_NAME:] for other in others[:MOST_SESSIONS]),
    )


def _called(session: Mapping[str, Any]) -> str:
    """Name a session: a notebook by its path, a console, whose path is no file's, by its name."""
    keys = ("path", "name") if session.get("type") == "notebook" else ("name", "path")
    return next((str(session[key]) for key in keys if session.get(key)), "")
