"""Restarts this kernel through its Jupyter Server and has words applied in the new one.

The kernel dies on the way, so a process of its own does it: this module, run with `python -m`.
Source: Jupyter Server REST API, ``POST /api/kernels/<id>/restart``; its info files in Jupyter's runtime folder.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from tfgpu_magic.errors import Refused

PATIENCE = 60.0
"""Seconds in which a new kernel must answer."""

LAST_WORDS = 0.5
"""Seconds for the old kernel's last output to reach the browser before it is killed."""

BY_HAND = "Restart the kernel from its menu, and say it in the first cell."


@dataclass(frozen=True, slots=True)
class Server:
    """A Jupyter Server that runs our kernel: where it listens, and the token it takes."""

    url: str
    token: str
    kernel: str

    def call(self, path: str = "", *, post: bool = False) -> None:
        """Call the kernel's REST resource.

        Raises:
            OSError: it does not answer, or does not let us.
        """
        url = urllib.parse.urljoin(self.url, f"api/kernels/{self.kernel}{path}")
        if not url.startswith(("http://", "https://")):
            raise OSError(f"{url} is not a web address")
        headers = {"Authorization": f"token {self.token}"} if self.token else {}
        request = urllib.request.Request(url, data=b"" if post else None, headers=headers)  # noqa: S310  # checked above
        with urllib.request.urlopen(request, timeout=PATIENCE if post else 2.0, context=_trust(url)):  # noqa: S310
            pass


def restart(words: str) -> NoReturn:
    """Restart this kernel, and have the words applied in the new one before any other cell.

    It does not come back: it waits until the server asks the kernel to go, and then goes, so that no queued cell runs
    in a kernel that is going.

    Raises:
        Refused: this is no kernel of a Jupyter Server that can be reached, or the server did not restart it; the error
            says what to do by hand.
    """
    connection = _connection_file()
    server = _find_server(connection)
    helper = subprocess.Popen(
        [sys.executable, "-m", "tfgpu_magic.restart"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the kernel's process group is killed, and this one must outlive it
        text=True,
    )
    assert helper.stdin is not None  # noqa: S101  # asked for
    order = {"server": asdict(server), "connection": str(connection), "words": words, "pid": os.getpid()}
    print(f"Restarting this kernel. `{words}` will be in force in the new one; what your cells say there still counts.")
    sys.stdout.flush()
    try:
        time.sleep(LAST_WORDS)
    except KeyboardInterrupt:  # the user thought better of it
        helper.kill()
        helper.wait()
        raise
    with helper.stdin as pipe:  # not on the command line, where others could read the token
        json.dump(order, pipe)
    try:
        time.sleep(PATIENCE)
    except KeyboardInterrupt:  # how a server begins a restart; had this cell ended now, the next one might begin
        _leave()
    raise Refused(f"The Jupyter Server did not restart this kernel. {BY_HAND}")


def _leave() -> NoReturn:
    """End this process as a kernel that is asked to shut down does, but from within a cell."""
    try:
        atexit._run_exitfuncs()
    finally:
        os._exit(0)


def _connection_file() -> Path:
    kernel = sys.modules.get("ipykernel.kernelapp")
    if kernel is None or not kernel.IPKernelApp.initialized():
        raise Refused(f"This is no Jupyter kernel, so nobody can restart it. {BY_HAND}")
    return Path(kernel.IPKernelApp.instance().abs_connection_file)


def _find_server(connection: Path) -> Server:
    match = re.fullmatch(r"kernel-(?P<id>[\w-]+)\.json", connection.name)
    for url, token in _running_servers() if match else ():
        server = Server(url, token, match["id"] if match else "")
        try:
            server.call()
        except OSError:
            continue
        return server
    raise Refused(f"No Jupyter Server that may restart this kernel was found. {BY_HAND}")


def _running_servers() -> Iterator[tuple[str, str]]:
    """Address and token of each of this user's servers, the one that started us first."""
    from jupyter_core.paths import jupyter_runtime_dir

    parent = os.environ.get("JPY_PARENT_PID", str(os.getppid()))
    files = sorted(Path(jupyter_runtime_dir()).glob("jpserver-*.json"), key=lambda file: parent not in file.stem)
    for file in files:
        try:
            info = json.loads(file.read_text())
            # Under JupyterHub the file has no token, and the single-user server takes the Hub's.
            yield info["url"], info["token"] or os.environ.get("JUPYTERHUB_API_TOKEN", "")
        except (OSError, ValueError, KeyError):
            continue  # a server that is just leaving


def _trust(url: str) -> ssl.SSLContext | None:
    """Verify certificates, but not those of this machine itself, which sign themselves."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https":
        return None
    context = ssl.create_default_context()
    if parts.hostname in ("localhost", "127.0.0.1", "::1"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _main() -> None:
    import zmq
    from jupyter_client.blocking.client import BlockingKernelClient

    order = json.load(sys.stdin)
    asking = threading.Thread(target=Server(**order["server"]).call, args=("/restart",), kwargs={"post": True})
    asking.start()
    _wait_for_the_end_of(order["pid"])
    # The new kernel listens where the old one did. What is sent now waits for it, and gets there first: other clients
    # look for it anew every tenth of a second, and this one every millisecond.
    context = zmq.Context()
    context.setsockopt(zmq.RECONNECT_IVL, 1)
    client = BlockingKernelClient(connection_file=order["connection"], context=context)
    client.load_connection_file()
    client.shell_channel.start()
    code = f"import tfgpu_magic.magic; tfgpu_magic.magic.resume({order['words']!r})"
    client.execute(code, silent=True, store_history=False)
    client.get_shell_msg(timeout=PATIENCE)
    asking.join()


def _wait_for_the_end_of(pid: int) -> None:
    """Wait until the old kernel is gone, or only its parent has not noticed yet."""
    import psutil

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.002)


if __name__ == "__main__":
    _main()
