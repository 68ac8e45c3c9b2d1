"""Restarts this kernel through its Jupyter Server, or ends it in Colab. The new one has a policy applied.

The kernel ends meanwhile, so a process of its own does it: `server_client`, run with `python -m`.
Colab starts a kernel anew when it has ended, and has no Jupyter Server that could be asked for more. There the words
are kept in a file in the board's directory, which only the user can read, for the next `%load_ext` of the same kernel:
the one with the same connection file since the machine was started.
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
from typing import TYPE_CHECKING, Any, NoReturn

from tfgpu_magic.errors import MonitorError, Refused
from tfgpu_magic.machine.board.directory import BoardDirectory

if TYPE_CHECKING:
    from tfgpu_magic.notebook.server_client import Server

LAST_WORDS = 0.5
"""Seconds in which the user may interrupt the restart, and in which pages then receive the end of their cells."""

BY_HAND = "Restart the kernel from its menu, and run the same line, without --restart, in its first cell."

KEPT = 900.0
"""Seconds in which kept words must be taken. Later they would surprise whoever runs the notebook then."""


class Restarting(BdbQuit):
    """The exception that ends a cell whose kernel is about to be restarted. IPython shows nothing for it."""


def restart(words: str, others: str = "") -> NoReturn:
    """Restart this kernel, and have a policy applied in the new one before any other cell.

    Args:
        words: the policy for TensorFlow.
        others: that for the other frameworks; empty if nothing is asked of them.

    The cell ends here, so that its page receives its end like that of any other; no later cell runs, and the page
    receives that too. Should the server not restart the kernel, a message below this cell says so, and cells run again.

    Raises:
        Refused: this is no kernel of a Jupyter Server that can be reached; the error says what to do by hand.
        Restarting: the kernel will be restarted.
    """
    kernel = _kernel()
    connection = Path(kernel.abs_connection_file)
    if "google.colab" in sys.modules:
        _end(words, others, connection, kernel)
    server = _find_server(connection)
    helper = subprocess.Popen(
        [sys.executable, "-m", "tfgpu_magic.notebook.server_client"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the kernel's process group is killed, and this one must outlive it
        text=True,
    )
    order = {
        "server": asdict(server),
        "connection": str(connection),
        "words": [words, others],
        "pid": os.getpid(),
        "pause": LAST_WORDS,
    }
    try:
        print(f"Restarting this kernel. `{words}` will be in force in the new one, until %tf_gpu changes it there.")
        sys.stdout.flush()
        time.sleep(LAST_WORDS)
    except KeyboardInterrupt:  # the user has changed their mind
        helper.kill()
        helper.communicate()
        raise
    kernel.kernel.do_execute = _not_run
    threading.Thread(target=_send, args=(helper, json.dumps(order), kernel.kernel), daemon=True).start()
    raise Restarting


def _end(words: str, others: str, connection: Path, kernel: Any) -> NoReturn:
    """End this kernel, which its front end starts anew. The next `%load_ext` there applies the policy.

    Raises:
        Refused: the words cannot be kept.
        Restarting: the kernel ends with this cell.
    """
    keep(words, others, connection)
    try:
        print(
            f"Ending this kernel, and Colab starts it anew; it may call that a crash. `{words}` is in force there when "
            f"`%load_ext tfgpu_magic` has been run again, if that is within {KEPT / 60:.0f} minutes."
        )
        sys.stdout.flush()
        time.sleep(LAST_WORDS)
    except KeyboardInterrupt:  # the user has changed their mind
        take(connection)
        raise
    kernel.kernel.do_execute = _not_run
    kernel.kernel.shell.exit_now = True  # as `exit()` does; the cell's page receives its end before
    raise Restarting


def keep(words: str, others: str, connection: Path) -> None:
    """Write the words of a policy for the successor of the kernel with this connection file.

    Args:
        words: the policy for TensorFlow.
        others: that for the other frameworks; empty if nothing is asked of them.
        connection: the connection file, which both have.

    Raises:
        Refused: there is no place to keep them.
    """
    try:
        with BoardDirectory() as directory:
            descriptor = directory.open(_file_name(connection), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(descriptor, "w") as file:
                json.dump({"words": words, "others": others, "time": time.time(), "pid": os.getpid()}, file)
    except (MonitorError, OSError) as error:
        raise Refused(f"The policy cannot be kept for the new kernel: {error}", verdict=None) from error


def take(connection: Path) -> tuple[str, str] | None:
    """Return the words that this kernel's predecessor has written, and forget them. None if there are none."""
    try:
        with BoardDirectory() as directory, os.fdopen(directory.open(_file_name(connection), os.O_RDONLY)) as file:
            directory.remove(_file_name(connection))  # before they are used: words that end a kernel end only one
            kept = json.load(file)
        words, age, pid = (str(kept["words"]), str(kept["others"])), time.time() - kept["time"], kept["pid"]
    except (MonitorError, OSError, ValueError, KeyError, TypeError):
        return None
    return words if 0 <= age <= KEPT and pid != os.getpid() else None


def kept_words() -> tuple[str, str] | None:
    """Return the words that this kernel's predecessor has kept, and forget them. None if there are none."""
    app = _app()
    return None if app is None else take(Path(app.abs_connection_file))


def _file_name(connection: Path) -> str:
    """Return the name of the file in the board's directory."""
    return f"restart-{connection.stem}"


async def _not_run(*_: object, **__: object) -> dict[str, str]:
    """Answer a page that a cell was not run."""
    return {"status": "aborted"}


def _send(helper: subprocess.Popen[str], order: str, kernel: Any) -> None:
    """Pass the order to the helper. If it does not restart the kernel, the kernel runs cells again."""
    helper.communicate(order)  # not on the command line, where other users could read the token
    del kernel.do_execute
    print(f"The Jupyter Server did not restart this kernel. {BY_HAND}", file=sys.stderr)


def _app() -> Any:
    """Return ipykernel's application object of this kernel, or None if this is no Jupyter kernel."""
    module = sys.modules.get("ipykernel.kernelapp")
    return module.IPKernelApp.instance() if module is not None and module.IPKernelApp.initialized() else None


def _kernel() -> Any:
    kernel = _app()
    if kernel is None:
        raise Refused(f"This process is not a Jupyter kernel, so no server can restart it. {BY_HAND}", verdict=None)
    return kernel


def _find_server(connection: Path) -> Server:
    from tfgpu_magic.notebook import server_client  # other kernels than ipykernel need not have Jupyter's packages

    match = re.fullmatch(r"kernel-(?P<id>[\w-]+)\.json", connection.name)
    found = server_client.NONE if match is None else server_client.find(match["id"])
    if isinstance(found, str):
        raise Refused(f"{found} {BY_HAND}", verdict=None)
    return found
