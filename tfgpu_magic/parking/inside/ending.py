"""How a process ends that was parked: suspended, and never with its GPU state restored for the end.

One that is parked ends at once: what Python and libraries do at the end may call CUDA, and would wait for ever, or
crash. Under NVIDIA's open kernel module the end of a live context that was restored has hung whole hosts, and that of a
suspended process none: there, one that is back is parked again as the last act of its end. It may end by itself, by
SIGTERM, SIGHUP where its terminal is closed, or `os._exit`, as ipykernel does when its server is lost. Nobody can do
anything before SIGKILL.
Source: NVIDIA/cuda-checkpoint#53; ipykernel, `parentpoller.py`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from tfgpu_magic.frameworks import self_report

_exit, _register = os._exit, atexit.register
_ENDS = frozenset({signal.SIGTERM, signal.SIGHUP})


class Ending:
    """The end of this process."""

    def __init__(
        self,
        away: Callable[[], bool],  # tells whether the GPU state is away, so that nothing may run that could use it
        restored: Callable[[], bool],  # tells whether it is back, or on its way, and may not be at the end
        suspend: Callable[[], object],  # parks the process; it runs on any thread, and starts none
        save: Callable[[], object],  # writes what the process's own end would write
    ) -> None:
        self._away, self._restored, self._suspend, self._save = away, restored, suspend, save
        self._mask = threading.local()
        # A signal that comes for a fork before `_forget` has ended would be lost.
        os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._forget)
        self._turn = threading.Lock()  # of the thread that ends the process

    def arrange(self, *, last_act: bool) -> None:
        """Have the process end so from now on; with a last act, it may have to be parked again."""
        atexit.unregister(self._at_exit)
        _register(self._at_exit)
        if not last_act:
            return
        atexit.register = self._register  # type: ignore[assignment]  # its types tie the arguments to the function
        os._exit = self._at_once
        if threading.current_thread() is threading.main_thread():
            for number in _ENDS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, self._terminated)

    def _hold(self) -> None:
        self._mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, ())  # noted before: an interrupt may end this
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)

    def _release(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask.before)

    def _forget(self) -> None:
        """Have a process that was forked end as any other."""
        atexit.unregister(self._at_exit)
        atexit.register, os._exit = _register, _exit
        for number in _ENDS:
            if signal.getsignal(number) == self._terminated:
                signal.signal(number, signal.SIG_DFL)
        self._release()

    def _register(self, function: Callable[..., object], *args: Any, **options: Any) -> Callable[..., object]:
        """Take the place of `atexit.register`: ours stays the last that is registered, and is called first.

        So it is what calls all others, and comes to its last act after them.
        """
        _register(function, *args, **options)
        atexit.unregister(self._at_exit)
        _register(self._at_exit)
        return function

    def _at_exit(self) -> None:
        if self._away() or self._restored():
            self._end(0)

    def _terminated(self, number: int, _: object) -> None:
        self._end(128 + number)

    def _at_once(self, status: int) -> NoReturn:
        """Take the place of `os._exit`."""
        _ignore_signals()  # the handler of one would wait for this thread's turn
        self._turn.acquire()  # whoever has it ends the process
        with contextlib.suppress(BaseException):  # whatever it is, it ends
            if self._restored():
                self._suspend()
        _exit(status)

    def _end(self, status: int) -> NoReturn:
        _ignore_signals()
        if not self._away():
            atexit.unregister(self._at_exit)
            self_report.note_last_act()
            atexit._run_exitfuncs()
        for write in (self._save, sys.stdout.flush, sys.stderr.flush):
            with contextlib.suppress(Exception):
                write()
        self._at_once(status)


def _ignore_signals() -> None:
    """Have the end go on whatever signal comes: Jupyter Server sends SIGTERM meanwhile, a user Ctrl-C."""
    if threading.current_thread() is threading.main_thread():
        for number in (*_ENDS, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
