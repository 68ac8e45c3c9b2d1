"""The cgroups that limits are for, and whose they are: systemd's of users, and given ones, but none that users made."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tfgpu_magic.root import trust

PROC = Path("/proc")
PATIENCE = 0.25  # seconds that a round waits for the names of users
_SLICE = re.compile(r"user-(\d{1,10})\.slice", re.ASCII)
# systemd-logind's slices, and the units of SystemdSpawner and The Littlest JupyterHub, whose slice can be chosen
_UNITS = "jupyter-*.service"
_PATTERNS = ("user.slice/user-*.slice", f"*.slice/{_UNITS}", f"*.slice/*.slice/{_UNITS}")


class User(NamedTuple):
    """A user: the name, else the number; both; names and numbers of the groups."""

    name: str
    names: frozenset[str]
    groups: frozenset[str] = frozenset()


class Cgroup(NamedTuple):
    """A cgroup's folder, its inode (one made anew has no limit yet), whose it is, if a user's, or why that is open."""

    path: str
    inode: int
    user: User | None = None
    why: str = ""


def mount() -> tuple[Path, Path] | None:
    """Return where cgroups of version 2 are mounted, and the folder of this process's; None if they are not."""
    mounts, own = ((PROC / "self" / name).read_text(errors="replace").splitlines() for name in ("mountinfo", "cgroup"))
    below = next((line[4:] for line in own if line.startswith("0::/")), "")
    return next(((root := Path(line.split(" ")[4]), root / below) for line in mounts if " - cgroup2 " in line), None)


class Listing:
    """Finds the cgroups again and again; whose a unit is, is learnt once, and nothing that runs in it changes that."""

    def __init__(self, root: Path, patience: float = PATIENCE) -> None:
        self._root, self._patience = root, patience
        self._owners: dict[tuple[Path, int], int] = {}
        self._users: dict[int | None, User] = {}
        self._asking, self._asked = threading.Thread(), (frozenset[str](), frozenset[str]())
        self.nameless: list[str] = []
        """The users and groups of the file that the system does not know, as `limits.groups.staff`."""

    def read(self, given: set[str], users: Iterable[str], groups: Iterable[str], *, again: bool) -> list[Cgroup]:
        """Return users' and given ones that only root can make.

        If ``again``, known users' groups are asked for, too, and the names of ``users`` and ``groups``.
        """
        paths = dict.fromkeys(map(Path, given))
        for pattern in _PATTERNS:
            with contextlib.suppress(OSError):  # a folder went meanwhile: what is new is found a round later
                paths.update((path, None) for path in self._root.glob(pattern))
        found = {path: inode for path in sorted(paths) if (inode := self._inode(path))}
        owners = {key: self._owners.get(key) or _owner(key[0]) for key in found.items()}
        self._owners = {key: uid for key, uid in owners.items() if uid is not None}
        new = {*self._owners.values()} - self._users.keys()
        asked = [*new, *({*self._owners.values()} - new if again else ())]
        file = frozenset(users), frozenset(groups)
        if (asked or again or file != self._asked) and not self._asking.is_alive():
            self._asked = file
            # In a thread, since a directory service can hang; what is known stays meanwhile.
            self._asking = threading.Thread(target=self._read_users, args=(asked, *file), daemon=True)
            self._asking.start()
            self._asking.join(self._patience)
        return [Cgroup(str(path), inode, *self._user_of(path, uid)) for (path, inode), uid in owners.items()]

    def _user_of(self, path: Path, uid: int | None) -> tuple[User | None, str]:
        if uid is None:
            return None, "no process in it shows whose it is" if path.match(_UNITS) else ""
        number = User(str(uid), frozenset({str(uid)}))
        return self._users.get(uid, number), "" if uid in self._users else f"the groups of {uid} are not known yet"

    def _inode(self, path: Path) -> int:
        """Return the inode of a cgroup that root alone can make or remove; 0 if it is another one, or none.

        A unit's own folder may be its user's, as with `Delegate=` and `User=`: who removes it needs its parent.
        """
        with contextlib.suppress(OSError):
            own = () if path.match(_UNITS) else (path,)
            found = [one.lstat() for one in (*own, *path.parents) if self._root in one.parents]
            return path.lstat().st_ino if self._root in path.parents and all(map(trust.is_roots, found)) else 0
        return 0

    def _read_users(self, uids: list[int], users: Iterable[str], groups: Iterable[str]) -> None:
        lost = _unknown_names("groups", groups, grp.getgrnam)
        self.nameless = [*_unknown_names("users", users, pwd.getpwnam), *lost]
        for uid in uids:
            if lost and uid in self._users:  # a directory that is away would take its users out of their groups
                continue
            try:
                user = pwd.getpwuid(uid)
                gids = os.getgrouplist(user.pw_name, user.pw_gid)
            except KeyError:  # it has no name; one that had a name keeps it
                self._users.setdefault(uid, User(str(uid), frozenset({str(uid)})))
                continue
            groups = {str(gid) for gid in gids}
            for gid in gids:
                with contextlib.suppress(KeyError):
                    groups.add(grp.getgrgid(gid).gr_name)
            self._users[uid] = User(user.pw_name, frozenset({user.pw_name, str(uid)}), frozenset(groups))


def _unknown_names(kind: str, names: Iterable[str], find: Callable[[str], object]) -> list[str]:
    """Return the names of the file that the system does not know; a number is known."""
    found: list[str] = []
    for name in names:
        try:
            name.isdecimal() or find(name)
        except KeyError:
            found.append(f"limits.{kind}.{name}")
    return found


def _owner(path: Path) -> int | None:
    """Return the user of a slice by its name, and of a unit by its folder, or the oldest process that is not root's."""
    if named := _SLICE.fullmatch(path.name):
        return int(named[1])
    ages: list[tuple[int, int]] = []
    with contextlib.suppress(OSError):
        if path.match(_UNITS) and (user := path.lstat().st_uid):
            return user
        for pid in (path / "cgroup.procs").read_text().split() if path.match(_UNITS) else ():
            with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended
                began = int((PROC / pid / "stat").read_bytes().rpartition(b")")[2].split()[19])
                ages.append((began, int((PROC / pid / "status").read_bytes().partition(b"\nUid:")[2].split()[0])))
    return min((one for one in ages if one[1]), default=(0, None))[1]
