"""`tfgpu demo`: `tfgpu top` on a simulated machine with neighbours; one look where the output is no terminal."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile

from tfgpu_magic.command.dispatch import is_drawn_on
from tfgpu_magic.demo.machine import simulated

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add its arguments, of which it has none."""
    parser.epilog = "It asks no driver and starts no TensorFlow. It needs Linux on x86-64."


def run(options: argparse.Namespace) -> int:  # noqa: ARG001  # as each command's
    """Show the machine until a key or a signal ends it, and all that was started with it."""
    for number in _ENDS:
        signal.signal(number, _end)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tfgpu_magic-", ignore_cleanup_errors=True) as board,
            simulated(moving=True) as machine,
        ):
            print(f"A SIMULATED machine of {len(machine.gpus())} GPUs, with two neighbours.", flush=True)
            # A user's own settings, such as a board or a ceiling, are for the real machine.
            kept = {name: os.environ[name] for name in os.environ if not _setting(name)}
            command = [sys.executable, "-m", "tfgpu_magic", "top" if is_drawn_on() else "status"]
            child = subprocess.Popen(command, env={**machine.environ(kept), "TFGPU_MAGIC_DIR": board})
            try:
                return child.wait()
            finally:
                child.terminate()
                child.wait()
    except _Signalled as ended:
        return 0 if ended.number == signal.SIGINT else 128 + ended.number


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
