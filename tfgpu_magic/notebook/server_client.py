"""The Jupyter Server that started this kernel: found among its ancestors, and verified before it is called.

Run with `python -m`, this is the process that has the server restart the kernel, which ends meanwhile.
Its token is as good as the user's account, and an info file outlives its server: then any process may listen at the
server's port.
Source: Jupyter Server's info files in Jupyter's runtime folder, and its REST API.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import ssl
import sys
import threading
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_core.paths import jupyter_runtime_dir

from tfgpu_magic.machine.owners.pids import ancestors

if TYPE_CHECKING:
    from collections.abc import Iterator

RESTART_TIMEOUT = 60.0
"""Seconds in which a new kernel must answer."""

NONE = "No Jupyter Server that may restart this kernel was found."

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # no listening: where such a server is reached


@dataclass(frozen=True, slots=True)
class Server:
    """A Jupyter Server that runs this kernel: its address on the network, and its token.

    Attributes:
        pid: the pid of its process.
        born: when that process was created: a pid alone may be another process's by now.
        url: its base URL. Its host is sent as a header only; the connection goes to the address at which `pid` listens.
        token: its token; empty if it needs none.
        kernel: its id of this kernel.
    """

    pid: int
    born: float
    url: str
    token: str
    kernel: str

    def call(self, path: str = "", *, post: bool = False) -> None:
        """Call the kernel's REST resource. Nothing is sent before it is certain that this server receives it.

        Raises:
            OSError: it does not answer or denies access, or another process listens there.
        """
        url = urllib.parse.urlsplit(urllib.parse.urljoin(self.url, f"api/kernels/{self.kernel}{path}"))
        address = self.address()
        connection = _connection(url.scheme, *address, seconds=RESTART_TIMEOUT if post else 10.0)
        # Without a token the server asks for what no other site can send: a cookie, and the same as a header.
        proof = {"Authorization": f"token {self.token}"} if self.token else {"Cookie": "_xsrf=0", "X-XSRFToken": "0"}
        headers = {"Host": url.netloc} | proof
        try:
            connection.connect()
            # It listened before the connection was made and listens now, so it is the process at the other end.
            if self.address() != address:
                raise OSError(f"process {self.pid} listens there no longer")
            connection.request("POST" if post else "GET", url.path, headers=headers)
            status = connection.getresponse().status
        except http.client.HTTPException as error:
            raise OSError(f"no answer: {error}") from error
        finally:
            connection.close()
        if not 200 <= status < 300:  # a redirect leads to another server
            raise OSError(f"HTTP status {status}")

    def address(self) -> tuple[str, int]:
        """Return the address and port at which it listens, as the system reports them.

        Raises:
            OSError: it is gone, or does not listen at its port.
        """
        port = urllib.parse.urlsplit(self.url).port
        try:
            process = psutil.Process(self.pid)
            if process.create_time() != self.born:
                raise OSError(f"process {self.pid} is another one now")
            listening = [one.laddr for one in _connections(process) if one.status == psutil.CONN_LISTEN]
        except psutil.Error as error:
            raise OSError(f"process {self.pid} cannot be asked where it listens: {error}") from error
        for address in sorted(listening):
            if address.port == port:
                return _ANYWHERE.get(address.ip, address.ip), address.port
        raise OSError(f"process {self.pid} does not listen at port {port}")


def find(kernel: str) -> Server | str:
    """Find the server that started this kernel's process and that runs a kernel of that id.

    Returns:
        The server; or a sentence on why there is none, or none that can be called.
    """
    why = NONE
    for info, process in _parents():
        if info.get("sock"):
            why = "The Jupyter Server of this kernel listens on a Unix socket, and can be asked over TCP only."
            continue
        # Under JupyterHub the file has no token, and the single-user server takes the Hub's.
        token = info["token"] or os.environ.get("JUPYTERHUB_API_TOKEN", "")
        try:
            server = Server(process.pid, process.create_time(), info["url"], token, kernel)
            server.call()
        except (OSError, psutil.Error) as error:
            why = f"The Jupyter Server of this kernel cannot be asked to restart it ({error})."
            continue
        return server
    return why


def _parents() -> Iterator[tuple[dict[str, Any], psutil.Process]]:
    """Yield the info of each server above this process, the nearest first: no other can have this kernel."""
    for process in _ancestors():
        try:
            info = json.loads(Path(jupyter_runtime_dir(), f"jpserver-{process.pid}.json").read_text())
            if process.uids().real == os.getuid() and isinstance(info["url"], str) and isinstance(info["token"], str):
                yield info, process
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            continue  # no server, or one that is just ending


def _ancestors() -> Iterator[psutil.Process]:
    """Yield every ancestor of this process, and the parent that the environment names, if that is older than this."""
    for pid in ancestors(os.getpid())[1:]:  # those above one that /proc hides are not known
        with contextlib.suppress(psutil.Error):
            yield psutil.Process(pid)
    named = os.environ.get("JPY_PARENT_PID", "")  # jupyter_client sets it; a process between them may have ended
    if re.fullmatch(r"[0-9]{1,9}", named):
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(int(named))
            if parent.create_time() <= psutil.Process().create_time():
                yield parent


def _connections(process: psutil.Process) -> list[Any]:
    ask = getattr(process, "net_connections", None) or process.connections  # its name before psutil 6
    return list(ask(kind="tcp"))


def _connection(scheme: str, host: str, port: int, *, seconds: float) -> http.client.HTTPConnection:
    if scheme == "https":
        # The system has told which process this is. A certificate would have to name an address known only here.
        context = ssl._create_unverified_context()  # noqa: S323
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
    if scheme != "http":
        raise OSError(f"{scheme} is no way to reach it")
    return http.client.HTTPConnection(host, port, timeout=seconds)


def _main() -> None:
    order = json.load(sys.stdin)
    _execute("", order["connection"])  # it is answered after the cells that were waiting: their pages have the result
    time.sleep(order["pause"])
    asking = threading.Thread(target=Server(**order["server"]).call, args=("/restart",), kwargs={"post": True})
    asking.start()
    _wait_for_the_end_of(order["pid"], asking)
    # The new kernel listens where the old one did. What is sent now waits for it, and arrives first: other clients
    # reconnect every tenth of a second, and this one every millisecond.
    _execute(f"import tfgpu_magic; tfgpu_magic._resume(*{order['words']!r})", order["connection"])
    asking.join()


def _execute(code: str, connection: str) -> None:
    """Execute code in the kernel of a connection file, and wait for its answer."""
    client = BlockingKernelClient(connection_file=connection)
    client.context.setsockopt(zmq.RECONNECT_IVL, 1)
    client.load_connection_file()
    client.shell_channel.start()
    client.execute(code, silent=True, store_history=False)
    client.get_shell_msg(timeout=RESTART_TIMEOUT)
    client.stop_channels()


def _wait_for_the_end_of(pid: int, asking: threading.Thread) -> None:
    """Wait until the old kernel has ended, even if its parent has not reaped it yet. Exit if it does not end."""
    deadline = time.monotonic() + RESTART_TIMEOUT
    while time.monotonic() < deadline:
        answered = not asking.is_alive()
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.Error:  # it has ended, and its pid may be another user's by now
            return
        if answered:
            break
        time.sleep(0.002)
    sys.exit(1)


if __name__ == "__main__":
    _main()
