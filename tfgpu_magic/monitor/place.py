"""The board's directory, which is nobody else's: found, made, and distrusted. What stands in its files, others know."""

from __future__ import annotations

import os
import stat
import tempfile
import zlib
from pathlib import Path

from tfgpu_magic.errors import MonitorError

_SIMULATED = "TFGPU_SIMGPU"
"""The variable that puts a process on a simulated machine (simgpu.ENVIRONMENT): another machine, another board."""
_MACHINE = "-simulated-"


def directory() -> Path:
    """Say where the board's directory is: the first that is possible, so that all processes of a user agree.

    ``$TFGPU_MAGIC_DIR``, else ``tfgpu_magic`` in ``$XDG_RUNTIME_DIR`` if that is ours (after `su` it is not), else
    one in the temporary directory, named by the user's number.
    """
    if said := os.environ.get("TFGPU_MAGIC_DIR"):
        return Path(said).absolute()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and _owner(runtime) == os.geteuid():  # noqa: PTH117  "" is no path
        return Path(runtime) / "tfgpu_magic"
    return Path(tempfile.gettempdir()) / f"tfgpu_magic-{os.geteuid()}"


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid  # noqa: PTH116
    except OSError:
        return None


class Place:
    """An open directory of our own, and the files of one machine's board in it.

    It is held by its descriptor: whatever is put at its path later, these files are where they were.

    Args:
        path: the directory, made if it is not there; None is `directory()`.

    Raises:
        MonitorError: it cannot be made, or is not ours alone: a link, another user's, open to others.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = directory() if path is None else path
        machine = os.environ.get(_SIMULATED)
        self._suffix = "" if machine is None else f"{_MACHINE}{zlib.crc32(os.fsencode(machine)):08x}"
        self._fd = -1
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if self.path.is_symlink():
                raise MonitorError(f"{self.path} is a link, and it could lead to anybody. {_INSTEAD}") from error
            raise MonitorError(f"{self.path} cannot be used ({error.strerror}). {_INSTEAD}") from error
        self._is = os.fstat(self._fd)
        if trouble := _trouble(self._is):
            self.close()
            raise MonitorError(f"{self.path} {trouble} {_INSTEAD}")

    def close(self) -> None:
        """Let go of the directory. Twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def simulated(self) -> bool:
        """Whether the board is that of a simulated machine."""
        return bool(self._suffix)

    def name(self, name: str) -> str:
        """Return the full name of a file: a simulated machine has files of its own."""
        return name + self._suffix

    def open(self, name: str, flags: int) -> int:
        """Open a file here, without following a link, and return its descriptor. What is not ours is not opened.

        Args:
            name: without the machine's suffix.
            flags: as for `os.open`.

        Raises:
            FileNotFoundError: there is none, and the flags say not to make it.
            MonitorError: what is there is not a plain file of ours, or cannot be opened.
        """
        path = self.path / self.name(name)
        safe = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe would let us wait for its writer
        try:
            fd = os.open(self.name(name), flags | safe, 0o600, dir_fd=self._fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise MonitorError(f"{path} cannot be opened ({error.strerror}). Remove it.") from error
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
            os.close(fd)
            raise MonitorError(f"{path} is not a plain file of your own. Remove it.")
        return fd

    def replace(self, new: str, name: str) -> None:
        """Let a file take another's name at once, as `os.replace`."""
        os.replace(self.name(new), self.name(name), src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self, name: str) -> None:
        """Remove a file; that there is none is fine.

        Raises:
            MonitorError: it cannot be removed.
        """
        try:
            os.unlink(self.name(name), dir_fd=self._fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise MonitorError(f"{self.path / self.name(name)} cannot be removed ({error.strerror}).") from error

    def names(self, prefix: str) -> list[str]:
        """List this machine's files whose names begin so, without the machine's suffix."""
        try:
            names = sorted(os.listdir(self._fd))  # noqa: PTH208  pathlib knows no descriptors
        except OSError:
            return []
        ours = [name for name in names if name.startswith(prefix) and name.endswith(self._suffix)]
        plain = [name.removesuffix(self._suffix) for name in ours]
        return [name for name in plain if _MACHINE not in name]

    def is_there(self) -> bool:
        """Tell whether the path still leads to this directory, and it is still ours alone."""
        try:
            now = os.lstat(self.path)
        except OSError:
            return False
        return os.path.samestat(now, self._is) and not _trouble(now)

    def holds(self, name: str, fd: int) -> bool:
        """Tell whether a name still leads to the file of this descriptor."""
        try:
            now = os.stat(self.name(name), dir_fd=self._fd, follow_symlinks=False)
            return os.path.samestat(now, os.fstat(fd))
        except OSError:
            return False


_INSTEAD = "Remove it, or name another directory in TFGPU_MAGIC_DIR."


def _trouble(found: os.stat_result) -> str:
    """Say why a directory is not to be trusted; empty if it is."""
    if not stat.S_ISDIR(found.st_mode):
        return "is not a directory."
    if found.st_uid != os.geteuid():
        return f"belongs to another user ({found.st_uid}, and you are {os.geteuid()})."
    if found.st_mode & 0o077:
        return f"is open to other users (mode {stat.S_IMODE(found.st_mode):o}; chmod 700 closes it)."
    return ""
