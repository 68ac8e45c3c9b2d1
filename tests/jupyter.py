"""A real Jupyter Server on a simulated machine, as its REST interface shows it."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_client.blocking.client import BlockingKernelClient

from tests import waiting
from tests.slack import SLACK
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

LEAN = Path(__file__).with_name("lean")
"""Hides what takes long to import or to run, where it is on the path.

These are pandas and matplotlib, which Keras imports, a fifth of TensorFlow's import; rfc3987_syntax, which makes
parsers each time, two thirds of Jupyter Server's; and Node.js, a third of what JupyterLab's start takes.
"""

_held: list[socket.socket] = []
"""Those that hold the ports of `free_port`."""

PATIENT = f"--KernelManager.shutdown_wait_time={30 * SLACK}"
"""Jupyter Server takes five seconds, in which a kernel on a busy machine may not have ended, or copied a GiB."""


class Client(BlockingKernelClient):
    """A kernel's client, whose requests stand each by itself: after an error none that waits is aborted."""

    def execute(self, code: str, *more: Any, **options: Any) -> Any:
        """Send a cell, and return its request's id."""
        return super().execute(code, *more, **{"stop_on_error": False, **options})

    def execute_interactive(self, code: str, **options: Any) -> dict[str, Any]:
        """Run a cell to its end, and return the reply."""
        told = {"timeout": 120 * SLACK, "stop_on_error": False, **options}
        return dict(super().execute_interactive(code, **told))


class Server:
    """A Jupyter Server.

    Args:
        machine: the machine that it and its kernels are on; None is the one that we are on.
        home: its user's directory, whose notebooks it has.
        token: what it asks for; "" is nothing.
        base: its base URL.
        options: more of its command line.
        application: the module that runs it: ``jupyterlab`` and ``notebook`` have pages.
        environment: variables that it has besides ours.
        python: the interpreter that runs it.
    """

    def __init__(
        self,
        machine: Machine | None,
        home: Path,
        *,
        token: str | None = None,
        base: str = "/",
        options: Sequence[str] = (),
        application: str = "jupyter_server",
        environment: dict[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.token = secrets.token_hex() if token is None else token
        self.port = free_port()
        self.base = f"127.0.0.1:{self.port}{base}"
        self.home = home
        self.runtime = home / "runtime"
        self.log = home / "server.log"
        variables = {
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "HOME": str(home),
            "IPYTHONDIR": str(home / ".ipython"),
            "JUPYTER_CONFIG_DIR": str(home / ".jupyter"),
            "PATH": f"{LEAN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(LEAN), os.environ.get("PYTHONPATH")])),
            **(environment or {}),
        }
        command = [
            *(python, "-m", application, "--allow-root", "--ServerApp.open_browser=False"),
            *(f"--ServerApp.root_dir={home}", f"--ServerApp.port={self.port}", f"--ServerApp.base_url={base}"),
            "--ServerApp.port_retries=0",
            *(f"--IdentityProvider.token={self.token}", *options),
        ]
        self._start = command, variables, machine
        self._clients: list[Client] = []
        self.start()

    def start(self) -> None:
        """Run it, again where it was stopped: at the same port, with the same token."""
        command, variables, machine = self._start
        outside = {**os.environ, **variables}
        environment = machine.environ(outside) if machine else outside
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.home, env=environment, stderr=log, stdout=log)

    def wait_until_it_answers(self) -> None:
        until(lambda: self.process.poll() is not None or self.call("status"))
        assert self.process.poll() is None, self.log.read_text()

    def stop(self) -> None:
        """End it and its kernels; one that waits for a kernel for good, as Jupyter Server may, is killed.

        Nor do clients go on: each would try to reach its kernel ten times a second, as long as this process lives.
        """
        while self._clients:
            self._clients.pop().stop_channels()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()  # its kernels see that, and end
            self.process.wait()

    def open(
        self, path: str, data: object = None, *, method: str | None = None, headers: dict[str, str] | None = None
    ) -> Any:
        """Ask for a path below the base URL, with the token unless there are other headers; return the answer."""
        request = urllib.request.Request(
            f"http://{self.base}{path}",
            data=None if data is None else json.dumps(data).encode(),
            headers={"Authorization": f"token {self.token}"} if headers is None else headers,
            method=method,
        )
        return urllib.request.urlopen(request, timeout=30 * SLACK)

    def delete(self, path: str) -> None:
        """Delete a session or a kernel; again if Jupyter Server, which restarts a killed kernel just then, fails."""

        def deleted() -> bool:
            try:
                self.open(path, method="DELETE").close()
            except urllib.error.HTTPError as error:
                error.close()
                gone = error.code in (404, 410)  # the first try has ended it, and failed later
                if error.code < 500 and not gone:
                    raise
                return gone
            return True

        waiting.until(deleted)

    def call(self, path: str, data: object = None, *, method: str | None = None) -> Any:
        """Call the REST interface, and return what it says."""
        with self.open(f"api/{path}", data, method=method) as answer:
            return json.load(answer)

    def connect(self, kernel: str) -> Client:
        client = Client(connection_file=str(self.runtime / f"kernel-{kernel}.json"))
        client.load_connection_file()
        client.hb_channel.time_to_dead = 30.0  # a machine that has much to do may not answer for a second
        self._clients.append(client)
        client.start_channels()
        client.wait_for_ready(timeout=60 * SLACK)
        return client


class Notebook:
    """A running kernel: of a notebook, whose file need not be there, or of none if no path is given."""

    def __init__(
        self, server: Server, path: str = "", *, kind: str = "notebook", name: str = "", kernel: str = "python3"
    ) -> None:
        self.server, self.path, self.session = server, path, ""
        asked: dict[str, Any] = {"name": kernel}
        if path:
            named = name or Path(path).name
            made = server.call("sessions", {"path": path, "name": named, "type": kind, "kernel": asked})
            self.session, self.kernel = made["id"], made["kernel"]["id"]
        else:
            self.kernel = server.call("kernels", asked)["id"]
        self.client = server.connect(self.kernel)
        self.pid = int(execute(self.client, "import os; print(os.getpid())"))

    def run(self, source: str) -> str:
        """Run a cell to its end, and return all of its text."""
        return execute(self.client, source)

    def end(self) -> None:
        self.client.stop_channels()
        self.server.delete(f"api/kernels/{self.kernel}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@contextmanager
def notebooks(server: Server, *names: str) -> Iterator[list[Notebook]]:
    """Start notebooks of these names with the extension, and end them and their kernels."""
    with ExitStack() as stack:
        started = [stack.enter_context(Notebook(server, name)) for name in names]
        for one in started:
            one.run("%load_ext tfgpu_magic\n%colors nocolor")
        yield started


def configure(home: Path, **settings: object) -> None:
    """Give every kernel of a home the extension, and the magics these settings, as an administrator does."""
    profile = home / ".ipython" / "profile_default"
    profile.mkdir(parents=True)
    lines = [f"c.TfGpuMagics.{name} = {value!r}" for name, value in settings.items()]
    loads = "c.InteractiveShellApp.extensions = ['tfgpu_magic']"
    (profile / "ipython_config.py").write_text("\n".join(["c = get_config()", loads, *lines, ""]))


@contextmanager
def serving(machine: Machine | None, home: Path, **options: Any) -> Iterator[Server]:
    server = Server(machine, home, **options)
    try:
        server.wait_until_it_answers()
        yield server
    finally:
        server.stop()


def free_port() -> int:
    """Return a port that nobody listens at, and that the system gives to nobody else while this process lives.

    A socket of ours is bound to it and does not listen, so a server that reuses addresses can, as nearly all do.
    """
    both = socket.has_dualstack_ipv6()
    held = socket.socket(socket.AF_INET6 if both else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if both:
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    held.bind(("", 0))
    _held.append(held)
    return int(held.getsockname()[1])


def until(ask: Callable[[], T], *, seconds: float = 60) -> T:
    """Ask a server until it gives a true answer, and return that; one that refuses or is not there is asked again."""

    def answer() -> T:
        try:
            return ask()
        except urllib.error.HTTPError as error:
            error.close()  # it is an answer too, with a connection
            raise

    return waiting.until(answer, seconds=seconds, every=0.2, despite=OSError)


def execute(client: BlockingKernelClient, code: str) -> str:
    """Return everything that a cell printed or was stopped by."""
    said: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        said.append(content.get("text") or content.get("data", {}).get("text/plain", "") or content.get("evalue", ""))

    reply = client.execute_interactive(code, timeout=120 * SLACK, output_hook=hear, stop_on_error=False)
    assert reply["content"]["status"] != "aborted", "another request has failed, and this one was not run"
    return "".join(said)


def reply_to(client: BlockingKernelClient, message: str) -> dict[str, Any]:
    """Return what a page is told of the end of a request."""
    while True:
        answer = client.get_shell_msg(timeout=120 * SLACK)
        if answer["parent_header"]["msg_id"] == message:
            return dict(answer["content"])
