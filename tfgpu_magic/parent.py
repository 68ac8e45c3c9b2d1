"""The Jupyter Server that started this kernel: found among its ancestors, and spoken to after it has proved to be that.

Its token is as good as the user's account, and an info file outlives its server: then anybody may listen at its port.
Source: Jupyter Server's info files in Jupyter's runtime folder, and its REST API.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tfgpu_magic.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60.0
"""Seconds in which a new kernel must answer."""

BY_HAND = "Restart the kernel from its menu, and run the same line, without --restart, in its first cell."

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # nothing listens here: where those who do are reached


@dataclass(frozen=True, slots=True)
class Server:
    """A process that runs our kernel: what it is called on the network, and the token it takes.

    Attributes:
        pid: its process.
        born: when that was created: a pid alone may be another's by now.
        url: its base URL. Its host is a name for the server; no connection goes by it.
        token: what it takes; empty where it asks for none.
        kernel: what it calls our kernel.
    """

    pid: int
    born: float
    url: str
    token: str
    kernel: str

    def call(self, path: str = "", *, post: bool = False) -> None:
        """Call the kernel's REST resource. Nothing is sent before it is sure that this process hears it.

        Raises:
            OSError: it does not answer, does not let us, or another one listens there.
        """
        url = urllib.parse.urlsplit(urllib.parse.urljoin(self.url, f"api/kernels/{self.kernel}{path}"))
        address = self._address()
        connection = _connection(url.scheme, *address, seconds=PATIENCE if post else 10.0)
        # Without a token the server asks for what no other site can send: a cookie, and the same as a header.
        proof = {"Authorization": f"token {self.token}"} if self.token else {"Cookie": "_xsrf=0", "X-XSRFToken": "0"}
        headers = {"Host": url.netloc} | proof
        try:
            connection.connect()
            if self._address() != address:  # it listened before we connected and listens now: it is who was reached
                raise OSError(f"process {self.pid} listens there no longer")
            connection.request("POST" if post else "GET", url.path, headers=headers)
            status = connection.getresponse().status
        except http.client.HTTPException as error:
            raise OSError(f"no answer: {error}") from error
        finally:
            connection.close()
        if not 200 <= status < 300:  # a redirect leads to somebody else
            raise OSError(f"HTTP status {status}")

    def _address(self) -> tuple[str, int]:
        """Return where it listens, as the system says; an address of this machine by that.

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


def find(kernel: str) -> Server:
    """Find the server that this kernel's process comes from, and see that it runs a kernel of that id.

    Raises:
        Refused: there is none, or it does not speak to us; the error says why, and what to do by hand.
    """
    why = "No Jupyter Server that may restart this kernel was found."
    for info, process in _parents():
        if info.get("sock"):
            why = "The Jupyter Server of this kernel listens on a Unix socket, and can be asked over TCP only."
            continue
        # Under JupyterHub the file has no token, and the single-user server takes the Hub's.
        token = info["token"] or os.environ.get("JUPYTERHUB_API_TOKEN", "")
        server = Server(process.pid, process.create_time(), info["url"], token, kernel)
        try:
            server.call()
        except OSError as error:
            why = f"The Jupyter Server of this kernel cannot be asked to restart it ({error})."
            continue
        return server
    raise Refused(f"{why} {BY_HAND}")


def _parents() -> Iterator[tuple[dict[str, Any], psutil.Process]]:
    """Info of each server that this process comes from, the nearest first. No other one could have our kernel."""
    from jupyter_core.paths import jupyter_runtime_dir

    for process in _ancestors():
        try:
            info = json.loads(Path(jupyter_runtime_dir(), f"jpserver-{process.pid}.json").read_text())
            if process.uids().real == os.getuid() and isinstance(info["url"], str) and isinstance(info["token"], str):
                yield info, process
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            continue  # no server, or one that is just leaving


def _ancestors() -> Iterator[psutil.Process]:
    """Every process that this one comes from, and the one that says it has started it, if that is older."""
    this = psutil.Process()
    yield from this.parents()
    named = os.environ.get("JPY_PARENT_PID", "")  # jupyter_client sets it; what is between may have left
    if re.fullmatch(r"[0-9]{1,9}", named):
        try:
            parent = psutil.Process(int(named))
            if parent.create_time() <= this.create_time():
                yield parent
        except psutil.Error:
            return


def _connections(process: psutil.Process) -> list[Any]:
    ask = getattr(process, "net_connections", None) or process.connections  # its name before psutil 6
    return list(ask(kind="tcp"))


def _connection(scheme: str, host: str, port: int, *, seconds: float) -> http.client.HTTPConnection:
    if scheme == "https":
        # Who it is, the system has said. A certificate would have to name an address that is only known here.
        context = ssl._create_unverified_context()  # noqa: S323
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
    if scheme != "http":
        raise OSError(f"{scheme} is no way to reach it")
    return http.client.HTTPConnection(host, port, timeout=seconds)
