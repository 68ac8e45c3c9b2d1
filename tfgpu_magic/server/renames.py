"""Keeps renamed notebooks' names on the board, where this user's kernels and programs read them (`report_files`)."""

from __future__ import annotations

import contextlib
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from jupyter_core.utils import ensure_async

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.board import report_files
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.server.worker import JobThread

if TYPE_CHECKING:
    from collections.abc import Callable


class Renames:
    """The renames of one server's notebooks. Nothing is asked in between: Jupyter tells its sessions of each.

    Args:
        session_manager: Jupyter Server's manager of sessions, whose `update_session` is wrapped.
    """

    def __init__(self, session_manager: Any) -> None:
        self._worker = JobThread()  # a home of NFS, or a directory of users, may hang
        update = session_manager.update_session

        async def updated(session_id: str, **changes: Any) -> None:
            await ensure_async(update(session_id, **changes))
            with contextlib.suppress(Exception):  # managers can be of any make, and a rename must go on
                session = await ensure_async(session_manager.get_session(session_id=session_id))
                if session["type"] == "notebook":
                    folder = session_manager.kernel_manager.cwd_for_path(session["path"])
                    path = PurePath(folder, PurePath(session["path"]).name)  # as a kernel gets it at its start
                    self._worker.do(_kept(session["kernel"]["id"], str(path)))

        session_manager.update_session = updated
        self._undo: Callable[[], None] = lambda: setattr(session_manager, "update_session", update)

    def close(self) -> None:
        """Follow them no longer."""
        self._undo()
        self._worker.close(lambda: None)


def _kept(kernel: str, path: str) -> Callable[[], None]:
    def keep() -> None:
        with contextlib.suppress(MonitorError, OSError), BoardDirectory() as place:
            report_files.rename(place, kernel, path)

    return keep
