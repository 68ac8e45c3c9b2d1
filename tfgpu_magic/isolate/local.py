"""Runs submitted calls in threads of this process, each with GPUs from `leases`, for executors and `@isolated`.

Every executor of Python's waits at the end of a program for what was submitted to it. There are two exceptions: Ctrl-C
also stops the calls, as it stops the workers of a `ProcessPoolExecutor`, which get it from the terminal; and a kernel
that is restarted or shut down does not wait, and kills its calls.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tfgpu_magic.errors import Unpicklable, WorkerDied
from tfgpu_magic.host import shell
from tfgpu_magic.isolate import sinks, user_code
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.job_list import JobFuture
from tfgpu_magic.isolate.lease import Abandoned
from tfgpu_magic.isolate.leases import LEASES
from tfgpu_magic.isolate.options import Options
from tfgpu_magic.isolate.run import function as runner
from tfgpu_magic.isolate.run import leased, run
from tfgpu_magic.isolate.values import copies, pickling
from tfgpu_magic.isolate.values.pickling import Pickled, Reduce

T = TypeVar("T")

_ending = False  # whether this process is ending, so that no more calls are accepted


class CallFuture(JobFuture[T]):
    """The future of a submitted call, which can also be stopped, and is listed among the jobs by `job_list`.

    Attributes:
        work: its pickled values, as they were when it was submitted; None once it has begun.
        sink: where its output goes: to the cell that submitted it.
        stopped: whether it has been stopped.
    """

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.work: Pickled | None = None
        self.sink = sinks.submitted()
        self.stopped = False
        self._call: Call | None = None

    @property
    def pid(self) -> int | None:
        """The id of its process; None if it has none."""
        return None if self._call is None else self._call.pid

    @property
    def waits(self) -> bool:
        """Whether it waits for a GPU."""
        return self._call is None

    def stop(self, *, kill: bool = False) -> None:
        """Cancel it if it has not begun; else interrupt it, as Ctrl-C does. Its future then raises `WorkerDied`.

        If it has not ended after 5 seconds, a line says so, and the next `stop` kills it.

        Args:
            kill: whether it is killed at once.
        """
        if self.cancel():
            return
        self.stopped = True
        if self._call is not None:  # else it is stopped when it begins
            (self._call.kill if kill else self._call.interrupt)()
        LEASES.stir()

    def take(self) -> Pickled:
        """Return its values, and keep none: they are large, and not needed when they have been sent."""
        work, self.work = self.work, None
        assert work is not None  # noqa: S101  # it runs once
        return work

    def begin(self, call: Call) -> None:
        """Keep the call that is about to run, for its pid and for interrupts.

        Raises:
            Abandoned: it has been stopped meanwhile.
        """
        self._call = call
        if self.stopped:
            raise Abandoned


class Local:
    """Runs submitted calls. Thread-safe.

    Attributes:
        most: how many run at once.
        closed: whether no more calls are accepted.

    Args:
        options: what is asked for each call.
        most: how many run at once; by default as many as there is room for.

    Raises:
        Refused: no call could have what is asked.
    """

    def __init__(self, options: Options, most: int | None = None) -> None:
        room = None if options.gpus == 0 else LEASES.survey(options.policy, options.gpus)
        self.most = most or room or len(os.sched_getaffinity(0))
        self.closed = False
        self._options = options
        self._changed = threading.Condition()
        self._ended = False
        self._waiting: deque[CallFuture[Any]] = deque()
        self._running: set[CallFuture[Any]] = set()
        self._threads = 0
        _EVERY.add(self)

    def submit(
        self,
        function: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        reduce: Reduce | None = None,
    ) -> CallFuture[T]:
        """Submit a call with its arguments as they are now: a change to them while the call waits does not reach it.

        Args:
            function: the function to call.
            args: its positional arguments.
            kwargs: its keyword arguments.
            reduce: a special way to pickle some objects.

        Returns:
            The future of its value; if the call cannot be sent, a future that raises `Unpicklable`, or `OSError` where
            there is no memory for it.

        Raises:
            RuntimeError: no more calls are accepted.
        """
        call: CallFuture[T] = CallFuture(pickling.name_of(function))
        self._check()
        try:
            call.work = copies.copied(pickling.dump_call(function, args, kwargs, reduce=reduce))
        except (Unpicklable, OSError) as error:
            call.set_exception(error)
            return call
        with self._changed:
            self._check()
            if self._threads < self.most:
                # Daemons, so that a process that ends by Ctrl-C, or is restarted, waits for no thread; see above.
                threading.Thread(target=self._work, name="tfgpu_magic-call", daemon=True).start()
                self._threads += 1  # its work begins when the lock is released
            self._waiting.append(call)  # now: if no thread can be started, the call is not submitted
        return call

    def shutdown(self, *, wait: bool, cancel: bool) -> None:
        """Accept no more calls; those that it has go on to their end.

        Args:
            wait: whether to return only then.
            cancel: whether those that have not begun are cancelled.
        """
        with self._changed:
            self.closed = True
            cancelled = list(self._waiting) if cancel else []
        for call in cancelled:
            call.cancel()
        if wait:
            with self._changed:
                self._changed.wait_for(lambda: not self._threads)

    def end(self, *, kill: bool) -> None:
        """Accept no more calls, cancel those that wait, and interrupt or kill those that run."""
        with self._changed:
            self._ended = True
            calls = list(self._running)
        self.shutdown(wait=False, cancel=True)
        for call in calls:
            call.stop(kill=kill)

    def _check(self) -> None:
        if self.closed or _ending:
            at = " interpreter" * _ending
            raise RuntimeError(f"cannot schedule new futures after{at} shutdown")  # the standard library's text

    def _work(self) -> None:
        """Run one call after the other, until none waits."""
        while True:
            with self._changed:
                call = self._waiting.popleft() if self._waiting else None
                if call is None:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                self._running.add(call)
            if call.set_running_or_notify_cancel():
                self._run(call)
            with self._changed:
                self._running.discard(call)
            del call

    def _run(self, call: CallFuture[Any]) -> None:
        """Run a call to its end."""
        call.enlist()
        try:
            one = Call(work=call.take().parts, timeout=self._options.timeout, sink=call.sink)
            lease = leased(self._options, lambda: not call.stopped)
            answer = run(one, lease, runner(), begun=call.begin)
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
        text = f"The call was {'ended, because all calls of its executor were' if self._ended else 'stopped'}."
        died = WorkerDied(text, status=getattr(error, "status", None), stopped=True)
        died.__cause__ = error.with_traceback(None)
        return died


_EVERY: weakref.WeakSet[Local] = weakref.WeakSet()


def _end() -> None:
    global _ending
    _ending = True
    backends = list(_EVERY)
    try:
        if hasattr(shell(), "kernel"):
            for backend in backends:
                backend.end(kill=True)
            return  # the calls' processes see that this one has ended
        # The Ctrl-C that ends this program. Where lines are typed in, it has only ended one of them, a while ago.
        if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt) and not _is_typed():
            for backend in backends:
                backend.end(kill=False)
        for backend in backends:
            backend.shutdown(wait=True, cancel=False)
    except KeyboardInterrupt:
        for backend in backends:
            backend.end(kill=True)
        raise


def _is_typed() -> bool:
    return shell() is not None or hasattr(sys, "ps1") or bool(sys.flags.interactive)


os.register_at_fork(after_in_child=_EVERY.clear)  # the threads of the parent's are not there
# As `concurrent.futures.thread` does: before `atexit`, whose handlers may use what the calls return.
threading._register_atexit(_end)  # type: ignore[attr-defined]
