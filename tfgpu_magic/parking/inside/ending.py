"""How a process ends that was parked: suspended, and never with its GPU state restored for the end.

One that is parked ends at once: what Python and libraries do at the end may call CUDA, and would wait for ever, or
crash. Under NVIDIA's open kernel module the end of a live context that was restored has hung whole hosts, and that of a
suspended process none: there, one that is back is parked again as the last act of its end. It may end by itself, by
SIGTERM, or by `os._exit`, as ipykernel does when its server is lost. Nobody can do anything before SIGKILL.
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
from functools import partial
from typing import Any, NoReturn

_exit, _register = os._exit, atexit.register


class Ending:
    """The end of this process.

    Args:
        away: tells whether the GPU state is away, so that nothing may run that could use it.
        restored: tells whether it is back, or on its way, and may not be at the end.
        suspend: parks the process; it runs on any thread, and starts none.
        save: writes what the process's own end would write.
    """

    def __init__(
        self,
        away: Callable[[], bool],
        restored: Callable[[], bool],
        suspend: Callable[[], object],
        save: Callable[[], object],
    ) -> None:
        self._away, self._restored, self._suspend, self._save = away, restored, suspend, save
        os.register_at_fork(after_in_child=self._forget)
        self._turn = threading.Lock()  # of the thread that ends the process

    def arrange(self, *, last_act: bool) -> None:
        """Have the process end so from now on.

        Args:
            last_act: whether it may have to be parked again.
        """
        atexit.unregister(self._at_exit)
        _register(self._at_exit)
        if not last_act:
            return
        atexit.register = self._register  # type: ignore[assignment]  # its types tie the arguments to the function
        os._exit = self._at_once
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)
            # One that comes for a fork before `_forget` has ended would be lost.
            hold, release = (
                partial(signal.pthread_sigmask, how, {signal.SIGTERM}) for how in (signal.SIG_BLOCK, signal.SIG_UNBLOCK)
            )
            os.register_at_fork(before=hold, after_in_parent=release, after_in_child=release)

    def _forget(self) -> None:
        """Have a process that was forked end as any other."""
        atexit.unregister(self._at_exit)
        atexit.register, os._exit = _register, _exit
        if signal.getsignal(signal.SIGTERM) == self._terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

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
        self._turn.acquire()  # whoever has it ends the process
        with contextlib.suppress(BaseException):  # whatever it is, it ends
            if self._restored():
                self._suspend()
        _exit(status)

    def _end(self, status: int) -> NoReturn:
        for number in (signal.SIGTERM, signal.SIGINT):  # Jupyter Server sends the first while this goes on
            signal.signal(number, signal.SIG_IGN)
        if not self._away():
            atexit.unregister(self._at_exit)
            atexit._run_exitfuncs()
        for write in (self._save, sys.stdout.flush, sys.stderr.flush):
            with contextlib.suppress(Exception):
                write()
        self._at_once(status)
