"""`tfgpu top`: the table of the GPUs, drawn anew each second in a terminal; if the output is none, one snapshot."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator

from tfgpu_magic.command import status
from tfgpu_magic.command.dispatch import is_drawn_on
from tfgpu_magic.ground import terminal
from tfgpu_magic.ground.rows import Table
from tfgpu_magic.policy.word import ParsedLine
from tfgpu_magic.tell.fetch import Watcher, failure

MORE = "If the output is no terminal, or a dumb one, it is that of `tfgpu status`."

EVERY = 1.0
"""Seconds between two looks."""
HANGS_AFTER = 5.0
"""Seconds without a look after which reading this machine's processes counts as hung."""

_FIRST = Table(notes=("Asking the driver…",))
_HANGS = Table(error="This machine's processes cannot be read at the moment.")
_BROKEN = "The table cannot be drawn: something is wrong in tfgpu_magic. `tfgpu status` may say what."
_QUITS, _SUSPEND = b"qQ", signal.SIGTSTP
_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGWINCH)
"""The signals that are answered; of those that come together, the first here."""


def run(line: ParsedLine) -> int:
    """Show the table until a key or a signal ends it."""
    if not is_drawn_on():
        return status.run(line)
    with _Looks() as looks, _events(looks) as heard:
        number: int | None = _SUSPEND
        while number == _SUSPEND:
            with _keys() as keys, terminal.full_screen() as live:
                number = None
                while number in (None, signal.SIGWINCH):
                    size = live.console.size
                    live.update(terminal.screen(looks.table(), width=size.width, height=size.height), refresh=True)
                    number = heard(keys)
            if number == _SUSPEND:
                os.kill(os.getpid(), signal.SIGSTOP)
    return 0 if number == signal.SIGINT else 128 + number if number else 0


class _Looks:
    """Looks at the GPUs from second to second, in a thread of its own: one may hang, and keys are heard all the same.

    Attributes:
        reader: a descriptor from which can be read when there is a new look, or a signal.
    """

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._table, self._at = _FIRST, time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfgpu_magic-top", daemon=True)

    def __enter__(self) -> _Looks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(EVERY)

    def table(self) -> Table:
        """Return what was seen last."""
        return self._table if time.monotonic() - self._at < HANGS_AFTER else _HANGS

    def _run(self) -> None:
        watcher: Watcher | None = None
        while True:
            try:
                if watcher is None:
                    watcher = Watcher(kernel=0)
                    watcher.watch.wait(HANGS_AFTER / 2)
                self._table = watcher.read()
            except Exception as error:  # whatever it is: the next look may work
                self._table = failure(error, _BROKEN)
            self._at = time.monotonic()
            with contextlib.suppress(OSError):
                os.write(self.writer, b"\0")
            if self._ended.wait(EVERY):
                return


@contextlib.contextmanager
def _events(looks: _Looks) -> Iterator[Callable[[int | None], int | None]]:
    """Yield a function that waits for a reading, a signal or a key, and returns the signal; a key may stand for one."""

    def heard(keys: int | None) -> int | None:
        ready, _, _ = select.select([looks.reader, *([] if keys is None else [keys])], [], [], HANGS_AFTER)
        if keys is not None and keys in ready:
            pressed = os.read(keys, 64)
            if not pressed:  # the terminal is gone, of which a signal does not always tell
                return signal.SIGHUP
            if any(key in _QUITS for key in pressed):
                return signal.SIGINT
        numbers = os.read(looks.reader, 64) if looks.reader in ready else b""
        return next((number for number in _HEARD if number in numbers), None)

    before = {number: signal.signal(number, lambda *_: None) for number in _HEARD}
    fd = signal.set_wakeup_fd(looks.writer, warn_on_full_buffer=False)
    try:
        yield heard
    finally:
        signal.set_wakeup_fd(fd)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _keys() -> Iterator[int | None]:
    """Yield the keyboard, whose keys are read as they are pressed; None if there is none."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
