"""Runs docs/lab.md with a real JupyterHub on a simulated machine: to look at, or to see the idle ladder hold."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from scripts import _lab_checks
from scripts._hub_rig import SERVER, Hub, wait_for, write_config
from scripts._hub_users import unix_user
from scripts._hub_view import ROOT
from scripts._lab_view import PACKAGES, TOOLS, furnish, started, unplug
from scripts._systemctl import RUNNING
from tests.lab.prometheus import UNPACKED
from tfgpu_magic.simgpu import Machine

HUB, PROMETHEUS, EXPORTER = 8000, 9090, 9836
"""The ports of the page."""
HOME = Path("/mnt/home")
CONFIG = Path("/etc/jupyterhub")
_UNIT = f"""[Service]
ExecStart={sys.executable} -m jupyterhub --config jupyterhub_config.py
WorkingDirectory={CONFIG}
"""
_READERS = """
import os, pathlib, pwd
from jupyterhub.spawner import LocalProcessSpawner

class InSlices(LocalProcessSpawner):
    def make_preexec_fn(self, name):
        become = super().make_preexec_fn(name)
        slices = pathlib.Path(f"/sys/fs/cgroup/user.slice/user-{pwd.getpwnam(name).pw_uid}.slice")
        slices.mkdir(parents=True, exist_ok=True)
        def enter():
            (slices / "cgroup.procs").write_text(str(os.getpid()))
            become()
        return enter

c.JupyterHub.spawner_class = InSlices
c.JupyterHub.cleanup_servers = False
c.DummyAuthenticator.password = rig["password"]
"""
"""What the reader of the page has already: a Hub whose users are in slices as systemd's, and outlive its restarts."""


def commands(short: bool = True) -> list[str]:
    """Return the page's commands.

    Args:
        short: whether hours are minutes in them, and minutes are seconds.
    """
    found = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / "lab.md").read_text(), re.DOTALL | re.MULTILINE)
    return [_shortened(command) for command in found] if short else found


def _shortened(command: str) -> str:
    return re.sub(r'(?<== ")(\d+)h"', r'\1m"', command).replace("scrape_interval: 30s", "scrape_interval: 1s")


class Lab:
    """A machine of one's own on which the page's commands are run; what pip installs finds the packages that are here.

    Args:
        machine: its GPUs.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        path = f"{TOOLS}:{UNPACKED}:{sys.base_prefix}/bin:{os.defpath}:/usr/sbin:/sbin"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JUPYTER"))}
        self._variables = machine.environ(kept | {"PATH": path})

    def do(self, command: str) -> str:
        """Run a command as root in the clone, and return what it says.

        Raises:
            SystemExit: it fails.
        """
        done = subprocess.run(
            ["sh", "-euc", command], env=self._variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            raise SystemExit(f"{done.stdout}\nexit status {done.returncode} of:\n{command}")
        for folder in Path("/opt/tfgpu_magic/lib").glob("python3*/site-packages"):
            (folder / "packages.pth").write_text(f"{PACKAGES}\n")
        return done.stdout


@contextmanager
def lab() -> Iterator[Lab]:
    """Make this process's view a machine with the page's Grafana's folders, and nothing of tfgpu_magic."""
    furnish()
    for folder in ("/etc/grafana/provisioning/dashboards", "/etc/grafana/provisioning/datasources"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    with Machine.create("4x16GiB", shared=True) as machine:
        machine.set_driver("615.71.09")
        try:
            yield Lab(machine)
        except BaseException:
            for log in sorted(RUNNING.glob("*.log")):
                print(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            raise


@contextmanager
def hub_of(lab: Lab, names: tuple[str, ...], *, pages: bool) -> Iterator[Hub]:
    """Make users, and the reader's Hub, which is not started yet.

    Args:
        lab: their machine.
        names: of the users.
        pages: whether their servers have JupyterLab's.
    """
    HOME.mkdir()
    CONFIG.mkdir(exist_ok=True)
    with ExitStack() as stack:
        users = {name: stack.enter_context(unix_user(name, HOME)) for name in names}
        hub = Hub(lab.machine, users, HUB, secrets.token_hex())
        stack.callback(hub.close)
        environment = {**lab.machine.environ({}), "JUPYTERHUB_ACTIVITY_INTERVAL": "3"}
        if not pages:
            environment["JUPYTERHUB_SINGLEUSER_APP"] = SERVER
        write_config(hub, CONFIG, _READERS, environment=environment, password=hub.token[:12])
        Path("/etc/systemd/system/jupyterhub.service").write_text(_UNIT)
        yield hub


def walk(lab: Lab, *, alone: bool) -> None:
    """Run all of the page's commands.

    Args:
        lab: where.
        alone: whether what they start listens where nobody else can reach it.
    """
    for number, command in enumerate(commands(), 1):
        print(f"--- {number} ---\n{command}{lab.do(command)}", flush=True)
        if alone and "pip install" in command:
            unplug()


def _look(lab: Lab) -> int:
    """Let somebody look, until the process is ended."""
    with hub_of(lab, ("ann", "bob"), pages=True) as hub:
        walk(lab, alone=False)
        lab.do("systemctl start jupyterhub")
        wait_for(hub, lambda: True)
        print(
            f"JupyterHub: http://127.0.0.1:{HUB} (ann or bob, with the password {hub.token[:12]})\n"
            f"Prometheus: http://127.0.0.1:{PROMETHEUS}/alerts\n"
            f"The exporter: http://127.0.0.1:{EXPORTER}/metrics\n"
            "The page's hours are minutes here. Ctrl-C ends it all.",
            flush=True,
        )
        signal.pause()
    return 0


def _check(lab: Lab) -> int:
    """Tell of each promise whether it holds."""
    with hub_of(lab, _lab_checks.USERS, pages=False) as hub:
        walk(lab, alone=True)
        lab.do("systemctl start jupyterhub")
        wait_for(hub, lambda: True)
        return _lab_checks.hold(lab, hub)


_ACTS = {"--look": _look, "--check": _check}


def main() -> int:
    """Start a machine of one's own for what the command line says, or be what was started there."""
    inside, act = sys.argv[1:2] == ["inside"], (sys.argv[1:] or ["--look"])[-1]
    if act not in _ACTS:
        print(f"scripts/lab [{' | '.join(_ACTS)}]", file=sys.stderr)
        return 2
    if inside:
        with lab() as here:
            return _ACTS[act](here)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    # In a session of its own a Ctrl-C does not come to it: what ends it here ends all of it at once.
    with suppress(KeyboardInterrupt), started("scripts._lab", "inside", act, start_new_session=True) as process:
        return process.wait()
    return 130


if __name__ == "__main__":
    sys.exit(main())
