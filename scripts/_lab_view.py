"""A machine of its own for what an administrator does: its files, cgroups and processes go with the first process."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts._hub_view import ROOT, enter, mount
from tests.cgroups import cgroup2
from tests.lab.prometheus import UNPACKED

TOOLS = Path("/run/tools")
"""What stands in for programs of a real machine, there."""
PACKAGES = Path("/opt/packages")
"""The packages of this Python's environment, there."""
SPACES = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--cgroup")
"""What `unshare` gives that machine of its own."""
_TRY = """mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work &&
mount -t overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work overlay /etc &&
mount -t cgroup2 none /mnt/upper"""
_UP = struct.pack("16sH14x", b"lo", 1)
_SIOCSIFFLAGS = 0x8914
_CLONE_NEWNET = 0x40000000


def why_not() -> str:
    """Return why no machine of one's own can be made here, as in a container without CAP_SYS_ADMIN, or nothing."""
    done = subprocess.run(["unshare", *SPACES, "sh", "-c", _TRY], check=False, capture_output=True, text=True)
    return f"no machine of its own can be mounted here: {done.stderr.strip()}" if done.returncode else ""


@contextmanager
def started(*command: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """Start a program on a machine of its own, as root; at the end all that it has started is gone.

    Args:
        command: a module, which calls `furnish` first, and its arguments.
        options: more for `subprocess.Popen`.
    """
    program = [sys.executable, "-m", *command]
    # A shell is the first process: it waits also for those whose parents have ended.
    first = ["unshare", *SPACES, "sh", "-c", '"$@"; exit $?', "sh", *program]
    with cgroup2() as group:
        join = ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(group), *first]
        process = subprocess.Popen(join, cwd=ROOT, text=True, **options)  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def furnish() -> None:
    """Make of this process's view, which `started` made, a machine that has Debian's Prometheus and no tfgpu_magic."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    given = {found[1]: os.open(found[1], os.O_PATH) for found in mounts if found[1].startswith("/etc/")}
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/mnt")
    for name in ("etc", "opt", "var"):  # what is written there goes into memory
        upper, work = (Path(f"/mnt/{name}.{part}") for part in ("upper", "work"))
        upper.mkdir()
        work.mkdir()
        mount("-t", "overlay", "-o", f"lowerdir=/{name},upperdir={upper},workdir={work}", "overlay", f"/{name}")
    for place, descriptor in given.items():  # a container's resolv.conf, which the overlay hides
        mount("--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{descriptor}", place)
        os.close(descriptor)
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for place in [found[1] for found in mounts if found[2] == "cgroup2"]:
        subprocess.run(["umount", "--lazy", place], check=True)
    mount("-t", "cgroup2", "none", "/sys/fs/cgroup")
    checkout = os.open(ROOT, os.O_PATH)
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    if not ROOT.exists():
        ROOT.mkdir(parents=True)
        mount("--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{checkout}", str(ROOT))
    os.close(checkout)
    os.chdir(ROOT)
    enter()
    PACKAGES.mkdir()  # a way to them that root alone can change
    mount("--bind", next(path for path in sys.path if path.endswith("site-packages")), str(PACKAGES))
    package = UNPACKED.parents[1]
    if package.is_dir():  # else it is installed
        subprocess.run(["cp", "-a", f"{package}/etc/.", "/etc"], check=True)
        home = Path("/var/lib/prometheus")
        if not any(user.pw_name == home.name for user in pwd.getpwall()):  # one that was removed leaves its user behind
            subprocess.run(["useradd", "--system", "--home-dir", str(home), home.name], check=True)
        home.mkdir(exist_ok=True)
        shutil.chown(home, home.name)
    TOOLS.mkdir()
    systemctl = TOOLS / "systemctl"
    systemctl.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m scripts._systemctl "$@"\n')
    systemctl.chmod(0o755)


def unplug() -> None:
    """Have a network of one's own from now on: any port is free there, and nobody else can reach what listens."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network namespace can be made here, which needs CAP_SYS_ADMIN")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _UP)
