"""`tfgpu demo`: `tfgpu top` on a simulated machine with neighbours, or the tour in JupyterLab; all goes at its end."""

from __future__ import annotations

import html
import os
import signal
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfgpu_magic.command.dispatch import is_drawn_on
from tfgpu_magic.command.wording import port
from tfgpu_magic.machine.see import look
from tfgpu_magic.policy.word import ParsedLine
from tfgpu_magic.simgpu.demo import lab
from tfgpu_magic.simgpu.demo.machine import simulated_machine

MORE = """\
It asks no driver, and without --lab it starts no TensorFlow. It needs Linux on
x86-64. The tour needs more packages:
  pip install jupyterlab tensorflow"""

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(line: ParsedLine) -> int:
    """Show the machine until a key or a signal ends it, and all that was started with it."""
    if "--lab" in line.flags:
        lab.check()
    for number in _ENDS:
        signal.signal(number, _end)
    try:
        with tempfile.TemporaryDirectory(prefix="tfgpu_magic-", ignore_cleanup_errors=True) as folder:
            return _tour(line, Path(folder)) if "--lab" in line.flags else _show(folder)
    except _Signalled as ended:
        return 0 if ended.number == signal.SIGINT else 128 + ended.number


def _show(board: str) -> int:
    with _machine(board) as (what, environment):
        print(f"{what[0].upper()}{what[1:]}.", flush=True)
        command = [sys.executable, "-m", "tfgpu_magic", "top" if is_drawn_on() else "status"]
        child = subprocess.Popen(command, env=environment)
        try:
            return child.wait()
        finally:
            child.terminate()
            child.wait()


def _tour(line: ParsedLine, folder: Path) -> int:
    board = folder / ".board"
    board.mkdir(mode=0o700)
    with (
        _machine(str(board), here="--here" in line.flags) as (what, environment),
        lab.touring(folder, environment, port(line, 8888)) as (process, url),
    ):
        print(f"The tour, on {what}: {url}   (Ctrl-C ends it)", flush=True)
        if "--no-browser" not in line.flags:
            webbrowser.open(_redirect(folder, url).as_uri())
        return process.wait()


def _redirect(folder: Path, url: str) -> Path:
    """Return a page that leads to an address whose token no command line is to have, where others could read it."""
    page = folder / ".open.html"
    page.touch(mode=0o600)
    page.write_text(f'<meta http-equiv="refresh" content="0; url={html.escape(url)}">')
    return page


@contextmanager
def _machine(board: str, *, here: bool = False) -> Iterator[tuple[str, dict[str, str]]]:
    """Print which machine it is, and yield the environment of programs there.

    Args:
        board: the folder of what programs on a simulated machine tell each other.
        here: whether this machine's GPUs are taken, if it has any.
    """
    if here and (gpus := look().gpus):
        yield f"this machine's GPUs ({len(gpus)})", dict(os.environ)
        return
    with simulated_machine(moving=True) as machine:
        # A user's own settings, such as a board or a ceiling, are for the real machine.
        kept = {name: os.environ[name] for name in os.environ if not _setting(name)}
        environment = {**machine.environ(kept), "TFGPU_MAGIC_DIR": board}
        yield f"a SIMULATED machine of {len(machine.gpus())} GPUs, with two neighbours", environment


def _setting(name: str) -> bool:
    return name.startswith("TFGPU_") and not name.startswith("TFGPU_SIMGPU")


class _Signalled(BaseException):
    """A signal has come; whatever is under way here is not to catch it."""

    def __init__(self, number: int) -> None:
        self.number = number


def _end(number: int, _: object) -> None:
    for one in _ENDS:
        signal.signal(one, signal.SIG_IGN)  # the way out is not to be interrupted
    raise _Signalled(number)
