"""Restarts this kernel through its Jupyter Server and has words applied in the new one.

The kernel dies on the way, so a process of its own does it: this module, run with `python -m`.
Source: Jupyter Server REST API, ``POST /api/kernels/<id>/restart``.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from tfgpu_magic.errors import Refused
from tfgpu_magic.parent import BY_HAND, PATIENCE, Server, find

LAST_WORDS = 0.5
"""Seconds for the old kernel's last output to reach the browser before it is killed."""


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
    if match is None:
        raise Refused(f"No Jupyter Server that may restart this kernel was found. {BY_HAND}")
    return find(match["id"])


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
