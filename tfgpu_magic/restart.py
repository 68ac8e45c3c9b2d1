"""Restarts this kernel through its Jupyter Server and has words applied in the new one.

The kernel dies on the way, so a process of its own does it: this module, run with `python -m`.
Source: Jupyter Server REST API, ``POST /api/kernels/<id>/restart``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from bdb import BdbQuit
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from tfgpu_magic.errors import Refused
from tfgpu_magic.parent import BY_HAND, PATIENCE, Server, find

LAST_WORDS = 0.5
"""Seconds in which the user may think better of it; and as many in which pages hear what became of their cells."""


class Restarting(BdbQuit):
    """This kernel is to be restarted, and the rest of the cell is not to run. IPython ends the cell without a word."""


def restart(words: str) -> NoReturn:
    """Restart this kernel, and have a policy's words applied in the new one before any other cell.

    The cell ends here, so that its page hears of its end as of any other's, and no later one runs: of each the page is
    told so. Should the server not restart the kernel, that is said below this cell, and cells run again.

    Raises:
        Refused: this is no kernel of a Jupyter Server that can be reached; the error says what to do by hand.
        Restarting: it will be restarted.
    """
    kernel = _kernel()
    connection = Path(kernel.abs_connection_file)
    server = _find_server(connection)
    helper = subprocess.Popen(
        [sys.executable, "-m", "tfgpu_magic.restart"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the kernel's process group is killed, and this one must outlive it
        text=True,
    )
    order = {"server": asdict(server), "connection": str(connection), "words": words, "pid": os.getpid()}
    try:
        print(f"Restarting this kernel. `{words}` will be in force in the new one, until %tf_gpu changes it there.")
        sys.stdout.flush()
        time.sleep(LAST_WORDS)
    except KeyboardInterrupt:  # the user thought better of it
        helper.kill()
        helper.communicate()
        raise
    kernel.kernel.do_execute = _not_run
    threading.Thread(target=_send, args=(helper, json.dumps(order), kernel.kernel), daemon=True).start()
    raise Restarting


async def _not_run(*_: object, **__: object) -> dict[str, str]:
    """Answer a page that a cell was not run."""
    return {"status": "aborted"}


def _send(helper: subprocess.Popen[str], order: str, kernel: Any) -> None:
    """Have the kernel restarted; where that fails, let it run cells again."""
    helper.communicate(order)  # not on the command line, where others could read the token
    del kernel.do_execute
    print(f"The Jupyter Server did not restart this kernel. {BY_HAND}", file=sys.stderr)


def _kernel() -> Any:
    """Return the application that this kernel is."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    if kernel is None or not kernel.IPKernelApp.initialized():
        raise Refused(f"This process is not a Jupyter kernel, so no server can restart it. {BY_HAND}")
    return kernel.IPKernelApp.instance()


def _find_server(connection: Path) -> Server:
    match = re.fullmatch(r"kernel-(?P<id>[\w-]+)\.json", connection.name)
    if match is None:
        raise Refused(f"No Jupyter Server that may restart this kernel was found. {BY_HAND}")
    return find(match["id"])


def _main() -> None:
    order = json.load(sys.stdin)
    _say("", order["connection"])  # it is answered after the cells that were waiting: their pages have been told
    time.sleep(LAST_WORDS)
    asking = threading.Thread(target=Server(**order["server"]).call, args=("/restart",), kwargs={"post": True})
    asking.start()
    _wait_for_the_end_of(order["pid"], asking)
    # The new kernel listens where the old one did. What is sent now waits for it, and gets there first: other clients
    # look for it anew every tenth of a second, and this one every millisecond.
    _say(f"import tfgpu_magic; tfgpu_magic._resume({order['words']!r})", order["connection"])
    asking.join()


def _say(code: str, connection: str) -> None:
    """Say something to the kernel of a connection file, and wait for its answer."""
    import zmq
    from jupyter_client.blocking.client import BlockingKernelClient

    client = BlockingKernelClient(connection_file=connection)
    client.context.setsockopt(zmq.RECONNECT_IVL, 1)
    client.load_connection_file()
    client.shell_channel.start()
    client.execute(code, silent=True, store_history=False)
    client.get_shell_msg(timeout=PATIENCE)
    client.stop_channels()


def _wait_for_the_end_of(pid: int, asking: threading.Thread) -> None:
    """Wait until the old kernel is gone, or only its parent has not noticed yet. Where it stays, we go."""
    import psutil

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        answered = not asking.is_alive()
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        if answered:
            break
        time.sleep(0.002)
    sys.exit(1)


if __name__ == "__main__":
    _main()
