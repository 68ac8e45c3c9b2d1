"""Finds, makes and checks the board's directory, the user's alone. Its files are `board`'s and `report_files`'s."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
import zlib
from functools import cache
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.process_kind import SIMULATED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLACE = "TFGPU_MAGIC_DIR"
"""The directory for what views share, in place of the user's own; the server and all kernels must have the same."""
_OF_A_VIEW = ("snapshot", "history", "lock", "viewers", "asked")
"""Prefixes of the files that belong to one view of the GPUs; all others belong to the whole machine."""
_TRIES = 100  # to open a file that others replace
_DEVICES = re.compile(r"nvidia\d.*|nvidiactl|dxg")
"""The names in /dev from which, beside those in /dev/nvidia-caps, it follows which GPUs a process may open."""
_TEMPORARY = "/tmp"  # noqa: S108  BoardDirectory checks the owner


def directories() -> tuple[str, ...]:
    """Return where the board's directory may be, the best first, so that all processes of a user agree.

    ``$TFGPU_MAGIC_DIR`` alone, else ``/tmp/tfgpu_magic-UID``, and a folder of this machine and boot in
    ``~/.cache/tfgpu_magic``, whose path no other user can take. These follow from the user's number: the rest of the
    environment differs between a server, a login and a job, and ``/run/user/UID`` comes and goes with logins.
    """
    if chosen := os.environ.get(PLACE):
        return (os.path.abspath(chosen),)
    user = os.geteuid()
    found = [f"{_TEMPORARY}/tfgpu_magic-{user}"]
    with contextlib.suppress(KeyError):  # a user id without a name has no home
        found.append(f"{pwd.getpwuid(user).pw_dir}/.cache/tfgpu_magic/{os.uname().nodename}-{boot_id():08x}")
    return tuple(found)


class BoardDirectory:
    """An open directory of the user's own, and the files of one machine's board in it.

    It is held by its descriptor: whatever is put at its path later, these files stay where they were.

    Args:
        path: the directory, made if it is not there; None is the first of `directories()` that can be used.

    Attributes:
        simulated: whether the board is that of a simulated machine.
        passed_over: why a better directory was not taken, a sentence or two; empty when this is the best.

    Raises:
        MonitorError: it cannot be made, or is not the user's alone: a link, another user's, open to others.
    """

    def __init__(self, path: os.PathLike[str] | None = None) -> None:
        machine = os.environ.get(SIMULATED)
        self.simulated = machine is not None
        self._path, self._fd, self.passed_over = _open_first(directories() if path is None else (str(path),))
        self._is = os.fstat(self._fd)
        self._machine = _suffix(boot_id(), machine or "")
        self._view = _suffix(boot_id(), machine or "", *_root_identity(), *_visible())

    @property
    def path(self) -> Path:
        """The directory's path."""
        from pathlib import Path  # a collector needs none, and answers sooner by 4 ms without its import

        return Path(self._path)

    def close(self) -> None:
        """Close the directory. Twice is fine."""
        if self._fd >= 0:
            close_own(self._fd, self._is)
        self._fd = -1

    def __enter__(self) -> BoardDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_same(self, other: BoardDirectory) -> bool:
        """Return whether another object has the same files, of the same machine and view."""
        return os.path.samestat(self._is, other._is) and self._view == other._view

    def full_name(self, name: str) -> str:
        """Return the full name of a file: every boot and every simulated machine have files of their own.

        What a collector writes and is told also belongs to one view of the GPUs, so that a container or a job that sees
        fewer of them, or other pids, hides nothing from other processes.
        """
        return name + self._suffix(name)

    def _suffix(self, name: str) -> str:
        return self._view if name.startswith(_OF_A_VIEW) else self._machine

    def open(self, name: str, flags: int) -> int:
        """Open a file here, without following a link, and return its descriptor; only the user's own files are opened.

        Args:
            name: without the machine's suffix.
            flags: as for `os.open`.

        Raises:
            FileNotFoundError: there is none, and the flags say not to make it.
            MonitorError: what is there is not a plain file of the user's, or cannot be opened.
        """
        path = f"{self._path}/{self.full_name(name)}"
        safe = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe would wait for its writer
        for _ in range(_TRIES):
            try:
                fd = os.open(self.full_name(name), flags | safe, self._mode_of_new(name), dir_fd=self._fd)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise MonitorError(f"{path} cannot be opened ({error.strerror}). Remove it.") from error
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and self._is_trusted(found):
                return fd
            os.close(fd)
            if found.st_nlink:  # else another one has taken its place since it was opened
                break
        raise MonitorError(f"{path} is not a plain file of your own. Remove it.")

    def _mode_of_new(self, name: str) -> int:  # noqa: ARG002  another directory has others
        return 0o600

    def _is_trusted(self, found: os.stat_result) -> bool:
        """Return whether only who may write a file here has written it."""
        return found.st_uid == os.geteuid() and found.st_nlink == 1

    def _why_not_trusted(self, found: os.stat_result) -> str:
        return _why_not_trusted(self._path, found)

    def rewrite(self, name: str, content: bytes, prepare: Callable[[int], object] = bool) -> int:
        """Replace a whole file: whoever has it open reads the old content, whoever opens it the new one.

        Args:
            name: the file's.
            content: what it will have.
            prepare: is called with the new file's descriptor before others can find it.

        Returns:
            The descriptor, to be closed by the caller.

        Raises:
            OSError: it cannot be written; the old one stays.
            MonitorError: something else is in the way.
        """
        new = f"new-{name}"
        self.remove(new)
        fd = self.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            prepare(fd)
            with open(fd, "wb", closefd=False) as file:
                file.write(content)
            os.replace(self.full_name(new), self.full_name(name), src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError:
            os.close(fd)
            self.remove(new)
            raise
        return fd

    def remove(self, name: str) -> None:
        """Remove a file, if it exists.

        Raises:
            MonitorError: it cannot be removed.
        """
        try:
            os.unlink(self.full_name(name), dir_fd=self._fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise MonitorError(f"{self._path}/{self.full_name(name)} cannot be removed ({error.strerror}).") from error

    def list_names(self, prefix: str) -> list[str]:
        """List this machine's files whose names begin with `prefix`, without the machine's suffix."""
        suffix = self._suffix(prefix)
        with contextlib.suppress(OSError):
            found = sorted(os.listdir(self._fd))
            ours = [name for name in found if name.startswith(prefix) and name.endswith(suffix)]
            return [name.removesuffix(suffix) for name in ours]
        return []

    def touch_time(self, name: str) -> int:
        """Return when a file was last changed or touched, in nanoseconds since the epoch; 0 if there is none."""
        try:
            return os.stat(self.full_name(name), dir_fd=self._fd, follow_symlinks=False).st_mtime_ns
        except OSError:
            return 0

    def touch(self, name: str) -> int:
        """Touch a file, which is made if there is none, and return the time that it has now, as `touch_time` does.

        Raises:
            OSError: it cannot be touched.
            MonitorError: as `open`.
        """
        fd = self.open(name, os.O_RDWR | os.O_CREAT)
        try:
            os.utime(fd)
            return os.fstat(fd).st_mtime_ns
        finally:
            os.close(fd)

    def is_there(self) -> bool:
        """Return whether the path still leads to this directory, and it is still the user's alone."""
        try:
            now = os.lstat(self._path)
        except OSError:
            return False
        return os.path.samestat(now, self._is) and not self._why_not_trusted(now)

    def has(self, name: str, fd: int) -> bool:
        """Return whether a name still leads to the file of this descriptor."""
        try:
            now = os.stat(self.full_name(name), dir_fd=self._fd, follow_symlinks=False)
            return os.path.samestat(now, os.fstat(fd))
        except OSError:
            return False


def close_own(fd: int, opened: os.stat_result) -> None:
    """Close a descriptor if it is still that of what was opened: a program may have closed it, and reused its number.

    Args:
        fd: the descriptor.
        opened: what it was of.
    """
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(fd), opened):
            os.close(fd)


def _open_first(paths: tuple[str, ...]) -> tuple[str, int, str]:
    """Open the first directory that can be used; return it, its descriptor, and why those before it cannot be used."""
    troubles: list[str] = []
    for path in paths:
        try:
            return path, _open_directory(path), " ".join(troubles)
        except MonitorError as error:
            troubles.append(str(error))
    raise MonitorError(troubles[0])


def _open_directory(path: str) -> int:
    """Open a directory, and make it if it is not there."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if os.path.islink(path):
            why = f"{path} is a link, and it could lead to anybody."
        else:
            why = f"{path} cannot be used ({error.strerror})."
        raise MonitorError(f"{why} {_advice(path)}") from error
    if trouble := _why_not_trusted(path, os.fstat(fd)):
        os.close(fd)
        raise MonitorError(f"{trouble} {_advice(path)}")
    return fd


def _advice(path: str) -> str:
    """Return what to do about a directory that cannot be used: only root can remove another user's in /tmp.

    One that was named may be full of its owner's files.
    """
    if os.environ.get(PLACE):
        return "Name another directory in TFGPU_MAGIC_DIR."
    with contextlib.suppress(OSError):
        if os.lstat(path).st_uid != os.geteuid():
            return "Ask your administrator to remove it, or name another directory in TFGPU_MAGIC_DIR."
    return "Remove it, or name another directory in TFGPU_MAGIC_DIR."


def _why_not_trusted(path: str, found: os.stat_result) -> str:
    """Return why a directory is not to be trusted; empty if it is."""
    if not stat.S_ISDIR(found.st_mode):
        return f"{path} is not a directory."
    if found.st_uid != os.geteuid():
        return f"{path} belongs to another user ({found.st_uid}, and you are {os.geteuid()})."
    if found.st_mode & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):o}"
        return f"{path} is open to other users (mode {mode}; chmod 700 closes it)."
    return ""


@cache
def boot_id() -> int:
    """Return a number that differs from machine to machine and from boot to boot, as the monotonic clock does."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return zlib.crc32(file.read())
    except OSError:
        return 0


def view_id() -> int:
    """Return a number that differs between processes that see other GPUs or other pids."""
    return zlib.crc32(repr(_visible()).encode())


def _visible() -> tuple[object, ...]:
    """Return the pid namespace, and the devices that may be opened: cgroups forbid some."""
    try:
        pids = os.readlink("/proc/self/ns/pid")
    except OSError:
        pids = ""
    return pids, devices()


def devices() -> tuple[str, ...]:
    """Return the names of the driver's devices in /dev that may be opened; a simulated machine has none."""
    return () if SIMULATED in os.environ else tuple(name for name in _devices() if os.access(f"/dev/{name}", os.R_OK))


def _root_identity() -> tuple[int, int]:
    """Return values that differ between processes with other root directories: the driver's library is there."""
    root = os.stat("/")
    return root.st_dev, root.st_ino


def _devices() -> list[str]:
    found = [name for name in _list_folder("/dev") if _DEVICES.fullmatch(name)]
    return found + [f"nvidia-caps/{name}" for name in _list_folder("/dev/nvidia-caps")]


def _list_folder(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def _suffix(*parts: object) -> str:
    return f"-{zlib.crc32(repr(parts).encode()):08x}"
