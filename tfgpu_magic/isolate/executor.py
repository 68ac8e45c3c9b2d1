"""A `concurrent.futures.Executor` whose calls run in processes of their own, each with GPUs from `leasing`.

A thread of this process runs one call after the other. Every executor of Python's waits at the end of a program for
what was submitted to it. There are two exceptions: Ctrl-C also stops the calls, as it stops the workers of a
`ProcessPoolExecutor`, which get it from the terminal; and a kernel that is restarted or shut down does not wait, and
kills its calls.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

from tfgpu_magic.errors import Unpicklable, WorkerDied
from tfgpu_magic.ground.host import shell
from tfgpu_magic.isolate import sinks, user_code
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.job_list import JobFuture
from tfgpu_magic.isolate.leasing import LEASES, Abandoned
from tfgpu_magic.isolate.run import Options, function_runner, leased, run
from tfgpu_magic.isolate.values import copies, pickling, plain
from tfgpu_magic.isolate.values.pickling import Reduce
from tfgpu_magic.policy.policy import Policy

P = ParamSpec("P")
T = TypeVar("T")

_ending = False  # whether this process is ending, so that no more calls are accepted


class CallFuture(JobFuture[T]):
    """The future of a submitted call, which can also be stopped, and is listed among the jobs by `job_list`.

    Attributes:
        call: its call, with its values as they were when it was submitted; its output goes to the cell that did so.
    """

    call: Call

    @property
    def waits(self) -> bool:
        """Whether it waits for a GPU."""
        return not self.call.begun

    def stop(self, *, kill: bool = False) -> None:
        """Cancel it if it has not begun; else interrupt it, as Ctrl-C does. Its future then raises `WorkerDied`.

        If it has not ended after 5 seconds, a line says so, and the next `stop` kills it.

        Args:
            kill: whether it is killed at once.
        """
        if not self.cancel():
            self.call.stop(kill=kill)


class IsolatedExecutor(Executor):
    """An executor that calls functions in processes of their own, which give their GPU memory back when they return.

    Each call gets GPUs of its own. With a limit it shares a GPU with others as far as there is room; a percentage is
    then all that its process holds, so that four calls at 25% run on one GPU. (`%tf_gpu limit 25%` counts the pool
    alone, and CUDA's context comes beside it.) What a call prints is seen where it was submitted.

    As in `ProcessPoolExecutor`, functions, arguments and results are pickled, also what a notebook defines; a call
    has them as they were when it was submitted. There is no pool of processes: nothing that a call leaves behind is
    there in the next, and one that dies breaks nothing.

    Args:
        max_workers: how many calls run at once; by default as many as the GPUs have room for now, or as there are
            CPUs if the calls use no GPU.
        policy: each call's policy, such as ``"limit 4GiB"``, in addition to the policy of this process.
        gpus: how many GPUs each call gets; 0 hides them all. By default one, if there is one.
        timeout: seconds that a call may take, or a text such as ``"10m"``; waiting for a GPU is not counted.
        initializer: a function that is called in each call's process before the submitted function.
        initargs: its arguments.

    Raises:
        PolicyError: the policy, the number of GPUs or a time is not valid.
        Refused: no call could have what is asked.
        ValueError: `max_workers` is not above zero.

    Examples:
        ``with IsolatedExecutor(policy="limit 25%") as executor: list(executor.map(train, range(5)))``
    """

    def __init__(
        self,
        max_workers: int | None = None,
        policy: str | Policy | None = None,
        gpus: int | None = None,
        timeout: float | str | None = None,
        *,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        self._options = Options.of(policy, gpus, timeout)
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")  # the standard library's text
        self._first = None if initializer is None else (initializer, initargs)
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        room = None if gpus == 0 else LEASES.survey(self._options.policy, gpus)
        self._most = max_workers or room or len(os.sched_getaffinity(0))
        self._closed = self._ended = False
        self._changed = threading.Condition()
        self._waiting: deque[CallFuture[Any]] = deque()
        self._running: set[CallFuture[Any]] = set()
        self._threads = 0
        _EVERY.add(self)

    @property
    def idle(self) -> bool:
        """Whether no call runs or waits."""
        return not self._threads

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> CallFuture[T]:
        """Submit a call of a function, and return the future of its value; the future's `stop()` stops the call.

        The future raises what the function raises; `Unpicklable`, which names what cannot be sent; `OSError` if there
        is no memory for its arguments; `WorkerDied`; `TimedOut`; `Refused` if other programs hold what it needs.

        Raises:
            RuntimeError: no more calls are accepted.
        """
        return self.submit_call(fn if self._first is None else _Prepared(*self._first, fn), args, kwargs)

    def submit_call(
        self, function: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any], reduce: Reduce | None = None
    ) -> CallFuture[T]:
        """Submit a call as `submit` does; `reduce` is a special way to pickle some objects."""
        call = Call(work=(), timeout=self._options.timeout, sink=sinks.submitted())
        future: CallFuture[T] = CallFuture(pickling.name_of(function), call)
        self._check()
        try:  # as they are now: a change to them while the call waits does not reach it
            call.work = copies.copied(pickling.dump_call(function, args, kwargs, reduce=reduce or plain.there)).parts
        except (Unpicklable, OSError) as error:
            future.set_exception(error)
            return future
        with self._changed:
            self._check()
            if self._threads < self._most:
                # Daemons, so that a process that ends by Ctrl-C, or is restarted, waits for no thread; see above.
                threading.Thread(target=self._work, name="tfgpu_magic-call", daemon=True).start()
                self._threads += 1  # its work begins when the lock is released
            self._waiting.append(future)  # now: if no thread can be started, the call is not submitted
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; those that run go on to their end, as do those that wait unless they are cancelled."""
        with self._changed:
            self._closed = True
            cancelled = list(self._waiting) if cancel_futures else []
        for call in cancelled:
            call.cancel()
        if wait:
            with self._changed:
                self._changed.wait_for(lambda: not self._threads)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for all calls, as every executor does; a Ctrl-C in the block, or while it waits, stops them too."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.terminate_workers()
        try:
            self.shutdown()
        except KeyboardInterrupt:
            self.terminate_workers()
            raise

    def terminate_workers(self) -> None:
        """Cancel the calls that wait, and interrupt those that run, as Ctrl-C does.

        If a call does not end, a line says after 5 seconds that the next interrupt kills it; `kill_workers` does not
        wait for that. The futures of stopped calls raise `WorkerDied`. Nothing can be submitted afterwards.
        Source: `ProcessPoolExecutor.terminate_workers` of Python 3.14.
        """
        self._end(kill=False)

    def kill_workers(self) -> None:
        """Cancel the calls that wait, and kill those that run.

        Source: `ProcessPoolExecutor.kill_workers` of Python 3.14.
        """
        self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        """Accept no more calls, cancel those that wait, and interrupt or kill those that run."""
        with self._changed:
            self._ended = True
            calls = list(self._running)
        self.shutdown(wait=False, cancel_futures=True)
        for call in calls:
            call.stop(kill=kill)

    def _check(self) -> None:
        if self._closed or _ending:
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

    def _run(self, future: CallFuture[Any]) -> None:
        """Run a call to its end."""
        future.enlist()
        value = error = None
        try:
            answer = run(future.call, leased(self._options, future.call), function_runner())
            with user_code.running():
                value = answer.value()
        except BaseException as raised:  # also KeyboardInterrupt: it belongs to the call, and not to this thread
            error = self._final_error(future.call, raised).with_traceback(None)  # its frames are ours
        future.forget()
        with user_code.running():
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def _final_error(self, call: Call, error: BaseException) -> BaseException:
        """Return what a call's future raises when running the call has raised an error."""
        if not (call.stopped and isinstance(error, KeyboardInterrupt | WorkerDied | Abandoned)):
            return error
        text = f"The call was {'ended, because all calls of its executor were' if self._ended else 'stopped'}."
        died = WorkerDied(text, status=getattr(error, "status", None), stopped=True)
        died.__cause__ = error.with_traceback(None)
        return died


class _Prepared:
    """A function that is called after an initializer in the same process."""

    def __init__(self, first: Callable[..., object], arguments: tuple[Any, ...], function: Callable[..., Any]) -> None:
        self._first, self._arguments, self._function = first, arguments, function
        self.__qualname__ = pickling.name_of(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._first(*self._arguments)
        return self._function(*args, **kwargs)


_EVERY: weakref.WeakSet[IsolatedExecutor] = weakref.WeakSet()


def _end() -> None:
    global _ending
    _ending = True
    executors = list(_EVERY)
    try:
        if hasattr(shell(), "kernel"):
            for executor in executors:
                executor._end(kill=True)
            return  # the calls' processes see that this one has ended
        # The Ctrl-C that ends this program. Where lines are typed in, it has only ended one of them, a while ago.
        if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt) and not _is_typed():
            for executor in executors:
                executor._end(kill=False)
        for executor in executors:
            executor.shutdown()
    except KeyboardInterrupt:
        for executor in executors:
            executor._end(kill=True)
        raise


def _is_typed() -> bool:
    return shell() is not None or hasattr(sys, "ps1") or bool(sys.flags.interactive)


os.register_at_fork(after_in_child=_EVERY.clear)  # the threads of the parent's are not there
# As `concurrent.futures.thread` does: before `atexit`, whose handlers may use what the calls return.
threading._register_atexit(_end)  # type: ignore[attr-defined]
