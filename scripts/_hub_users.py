"""Unix users that are made for a while, and their kernels as a page speaks to them."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from jupyter_client.blocking.client import BlockingKernelClient

from tests.jupyter import execute, until


@dataclass(slots=True)
class User:
    """A Unix user that lives as long as the rig."""

    name: str
    uid: int
    home: Path
    token: str = ""

    @property
    def board(self) -> Path:
        """Where the user's board is, if nothing is in its way."""
        return Path(tempfile.gettempdir()) / f"tfgpu_magic-{self.uid}"

    def run(self, *command: str) -> str:
        """Run a program as this user, who has no rights of ours, and return what it prints."""
        return subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=self.home,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
            user=self.uid,
            group=self.uid,
            extra_groups=[],
        ).stdout


@dataclass(slots=True)
class Kernel:
    """A kernel that was started through the proxy; its cells come from here."""

    id: str
    user: User
    _client: BlockingKernelClient | None = None

    @property
    def pid(self) -> int:
        """Its process."""
        for process in psutil.process_iter(["cmdline"]):
            if any(f"kernel-{self.id}.json" in word for word in process.info["cmdline"] or []):
                return process.pid
        return 0

    def connect(self) -> None:
        """Speak to the process that it now is."""
        self.close()
        file = self.user.home / f".local/share/jupyter/runtime/kernel-{self.id}.json"
        client = BlockingKernelClient(connection_file=str(until(lambda: file.exists() and file)))
        client.load_connection_file()
        client.hb_channel.time_to_dead = 30.0  # a machine that has much to do may not answer for a second
        client.start_channels()
        client.wait_for_ready(timeout=120)
        self._client = client

    def run(self, code: str) -> str:
        """Run a cell, and return all that it says."""
        if self._client is None:
            self.connect()
        assert self._client is not None
        return execute(self._client, code)

    def begin(self, code: str) -> None:
        """Start a cell."""
        if self._client is None:
            self.connect()
        assert self._client is not None
        self._client.execute(code)

    def close(self) -> None:
        """Leave it alone, as one who closes the page."""
        if self._client is not None:
            self._client.stop_channels()
        self._client = None


@contextmanager
def unix_user(name: str, folder: Path) -> Iterator[User]:
    """Make a Unix user with a home in a folder; at the end all processes and files of the user are gone too."""
    home = folder / name
    number = 10_000 + secrets.randbelow(40_000)  # another one than that of a rig beside this one, of other users
    account = ["--uid", str(number), "--create-home", "--home-dir", str(home), "--shell", "/bin/sh", name]
    subprocess.run(["useradd", *account], check=True)
    try:
        user = User(name, pwd.getpwnam(name).pw_uid, home)
        home.chmod(0o700)
        yield user
    finally:
        while processes := [process for process in psutil.process_iter() if _uid(process) == user.uid]:
            end(processes)
        subprocess.run(["userdel", name], check=True)
        for path in Path(tempfile.gettempdir()).iterdir():
            with suppress(FileNotFoundError):  # others' files come and go
                if path.lstat().st_uid == user.uid:
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _uid(process: psutil.Process) -> int | None:
    try:
        return process.uids().real
    except psutil.Error:
        return None


def end(processes: Sequence[psutil.Process]) -> None:
    """Kill processes, and wait until they are gone."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=30)


def see_that_they_can_run_it(user: User) -> None:
    """See that users reach this Python and what is in it.

    Raises:
        SystemExit: they do not.
    """
    try:
        user.run(sys.executable, "-c", "import tfgpu_magic, jupyterhub, numpy")
    except (OSError, subprocess.CalledProcessError) as error:
        why = f"Other users cannot run {sys.executable} ({error}). The checkout must be readable for them."
        raise SystemExit(why) from error
