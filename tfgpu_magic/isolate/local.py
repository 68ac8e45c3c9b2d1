"""The backend of this machine: threads of this process run submitted calls, each with GPUs from `leases`."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Any

from tfgpu_magic.errors import WorkerDied
from tfgpu_magic.isolate import shutdown, user_code
from tfgpu_magic.isolate.backend import ENDED, STOPPED, Door
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.future import CallFuture
from tfgpu_magic.isolate.lease import Abandoned
from tfgpu_magic.isolate.leases import LEASES
from tfgpu_magic.isolate.options import Options
from tfgpu_magic.isolate.run import function, leased, run


class Local:
    """The `Backend` of this machine.

    Args:
        options: what is asked for each call.
        most: how many run at once; by default as many as there is room for.

    Raises:
        Refused: no call could have what is asked.
    """

    def __init__(self, options: Options, most: int | None = None) -> None:
        room = None if options.gpus == 0 else LEASES.survey(options.policy, options.gpus)
        self.door = Door()
        self.most: int | None = most or room or len(os.sched_getaffinity(0))
        self._options = options
        self._ended = False
        self._waiting: deque[CallFuture[Any]] = deque()
        self._running: set[CallFuture[Any]] = set()
        self._threads = 0
        shutdown.add(self)

    def add(self, call: CallFuture[Any]) -> None:
        """Run a call in a thread of the backend."""
        with self.door.changed:
            self.door.check()
            self._waiting.append(call)
            if self.most is None or self._threads < self.most:
                # Daemons, so that a process that ends by Ctrl-C, or is restarted, waits for no thread; see `shutdown`.
                threading.Thread(target=self._work, name="tfgpu_magic-call", daemon=True).start()
                self._threads += 1  # its work begins when the lock is released

    def shutdown(self, *, wait: bool, cancel: bool) -> None:
        """Accept no more calls."""
        with self.door.changed:
            self.door.closed = True
            cancelled = list(self._waiting) if cancel else []
        for call in cancelled:
            call.cancel()
        if wait:
            with self.door.changed:
                self.door.changed.wait_for(lambda: not self._threads)

    def end(self, *, kill: bool) -> None:
        """Cancel the calls that wait, and interrupt or kill those that run."""
        with self.door.changed:
            self._ended = True
            calls = list(self._running)
        self.shutdown(wait=False, cancel=True)
        for call in calls:
            call.stop(kill=kill)

    def _work(self) -> None:
        """Run one call after the other, until none waits."""
        while True:
            with self.door.changed:
                call = self._waiting.popleft() if self._waiting else None
                if call is None:
                    self._threads -= 1
                    self.door.changed.notify_all()
                    return
                self._running.add(call)
            if call.set_running_or_notify_cancel():
                self._run(call)
            with self.door.changed:
                self._running.discard(call)
            del call

    def _run(self, call: CallFuture[Any]) -> None:
        """Run a call to its end."""
        call.enlist()
        try:
            one = Call(work=call.take().parts, timeout=self._options.timeout, sink=call.sink)
            lease = leased(self._options, lambda: not call.stopped)
            answer = run(one, lease, function(), begun=call.begin)
            with user_code.running():
                value = answer.value()
        except BaseException as error:  # also KeyboardInterrupt: it belongs to the call, and not to this thread
            call.forget()
            with user_code.running():
                call.set_exception(self._final_error(call, error).with_traceback(None))  # its frames are ours
        else:
            call.forget()
            with user_code.running():
                call.set_result(value)

    def _final_error(self, call: CallFuture[Any], error: BaseException) -> BaseException:
        """Return what a call's future raises when running the call has raised an error."""
        if not (call.stopped and isinstance(error, KeyboardInterrupt | WorkerDied | Abandoned)):
            return error
        died = WorkerDied(ENDED if self._ended else STOPPED, status=getattr(error, "status", None), stopped=True)
        died.__cause__ = error.with_traceback(None)
        return died
