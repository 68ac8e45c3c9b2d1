"""`@isolated`, and a `concurrent.futures.Executor`: calls of functions in processes of their own.

A thread of this process runs one call after the other. Every executor of Python's waits at the end of a program for
what was submitted to it. There are two exceptions: Ctrl-C also stops the calls, as it stops the workers of a
`ProcessPoolExecutor`, which get it from the terminal; and a kernel that is restarted or shut down does not wait, and
kills its calls.
"""

from __future__ import annotations

import functools
import inspect
import operator
import os
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from tfgpu_magic.errors import Unpicklable, WorkerDied
from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.process_kind import shell
from tfgpu_magic.isolate import sinks, user_code
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.job_list import JobFuture
from tfgpu_magic.isolate.leasing import LEASES, Abandoned
from tfgpu_magic.isolate.process.interrupt import noting_interrupt
from tfgpu_magic.isolate.run import Run, function_runner, lease_as_here, lease_of_own
from tfgpu_magic.isolate.values import copies, pickling, plain
from tfgpu_magic.isolate.values.pickling import Reduce
from tfgpu_magic.policy.policy import Policy

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")

_ending = False  # whether this process is ending, so that no more calls are accepted


class CallFuture(JobFuture[T]):
    """The future of a submitted call, which can also be stopped, and is listed among the jobs by `job_list`.

    Attributes:
        run: the run of its call, with its values as they were when it was submitted; its output goes to the cell that
            did so.
    """

    run: Run

    @property
    def waits(self) -> bool:
        """Whether it waits for a GPU."""
        return not self.run.begun

    def stop(self, *, kill: bool = False) -> None:
        """Cancel it if it has not begun; else interrupt it, as Ctrl-C does. Its future then raises `WorkerDied`.

        If it has not ended after 5 seconds, a line says so, and the next `stop` kills it.

        Args:
            kill: whether it is killed at once.
        """
        if not self.cancel():
            self.run.stop(kill=kill)


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
        self._call = Call.of_function(policy=policy, gpus=gpus, timeout=timeout)
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")  # the standard library's text
        self._first = None if initializer is None else (initializer, initargs)
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        room = None if gpus == 0 else LEASES.survey(self._call.policy, gpus)
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
        return self.submit_call(fn if self._first is None else _prepared(*self._first, fn), args, kwargs)

    def submit_call(
        self, function: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any], reduce: Reduce | None = None
    ) -> CallFuture[T]:
        """Submit a call as `submit` does; `reduce` is a special way to pickle some objects."""
        run = Run(call=self._call, sink=sinks.of_running_cell())
        future: CallFuture[T] = CallFuture(pickling.name_of(function), run)
        self._check()
        try:  # as they are now: a change to them while the call waits does not reach it
            work = pickling.dump_call(function, args, kwargs, reduce=reduce or plain.reduce_for_call)
            run.work = copies.copy_for_later(work).parts
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
        for future in cancelled:
            future.cancel()
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
            futures = list(self._running)
        self.shutdown(wait=False, cancel_futures=True)
        for future in futures:
            future.stop(kill=kill)

    def _check(self) -> None:
        if self._closed or _ending:
            at = " interpreter" * _ending
            raise RuntimeError(f"cannot schedule new futures after{at} shutdown")  # the standard library's text

    def _work(self) -> None:
        """Run one call after the other, until none waits."""
        while True:
            with self._changed:
                future = self._waiting.popleft() if self._waiting else None
                if future is None:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                self._running.add(future)
            if future.set_running_or_notify_cancel():
                self._run(future)
            with self._changed:
                self._running.discard(future)
            del future

    def _run(self, future: CallFuture[Any]) -> None:
        """Run a call to its end."""
        future.enlist()
        value = error = None
        try:
            outcome = future.run.run(lease_of_own(future.run), function_runner())
            with user_code.running():
                value = outcome.value()
        except BaseException as raised:  # also KeyboardInterrupt: it belongs to the call, and not to this thread
            error = self._final_error(future.run, raised).with_traceback(None)  # its frames are ours
        future.forget()
        with user_code.running():
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def _final_error(self, run: Run, error: BaseException) -> BaseException:
        """Return what a call's future raises when running the call has raised an error."""
        if not (run.stopped and isinstance(error, KeyboardInterrupt | WorkerDied | Abandoned)):
            return error
        text = "The call was ended, because all calls of its executor were." if self._ended else "The call was stopped."
        died = WorkerDied(text, status=getattr(error, "status", None), stopped=True)
        died.__cause__ = error.with_traceback(None)
        return died


def _prepared(first: Callable[..., object], arguments: tuple[Any, ...], function: Callable[..., T]) -> Callable[..., T]:
    """Return a function that is called after an initializer in the same process."""

    def call(*args: Any, **kwargs: Any) -> T:
        first(*arguments)
        return function(*args, **kwargs)

    call.__qualname__ = pickling.name_of(function)
    return call


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


@overload
def isolated(function: Callable[P, R], /) -> Isolated[P, R]: ...
@overload
def isolated(
    *, policy: str | Policy | None = None, gpus: int | None = None, timeout: float | str | None = None
) -> Callable[[Callable[P, R]], Isolated[P, R]]: ...
def isolated(
    function: Callable[P, R] | None = None,
    /,
    *,
    policy: str | Policy | None = None,
    gpus: int | None = None,
    timeout: float | str | None = None,
) -> Isolated[P, R] | Callable[[Callable[P, R]], Isolated[P, R]]:
    """Run each call of a function in a process of its own, which gives its GPU memory back when it returns.

    Without a policy and a number of GPUs a call sees the GPUs as this process would, and nothing is reserved for it.
    With either it gets GPUs that no other call of this process has, and waits for them; see `IsolatedExecutor`.

    Args:
        function: the function.
        policy: each call's policy, such as ``"limit 4GiB"``, in addition to the policy of this process.
        gpus: how many GPUs each call gets; 0 hides them all.
        timeout: seconds that a call may take, or a text such as ``"10m"``.

    Returns:
        The function in its new form. ``f(x)`` waits for the call; ``f.submit(x)`` returns its future;
        ``f.__wrapped__(x)`` calls it in this process. In an isolated call ``f(x)`` is an ordinary call, because it
        has a process of its own already; ``f.submit(x)`` still starts another.

    Raises:
        PolicyError: the policy, the number of GPUs or the timeout is not valid.

    Examples:
        ``@isolated(policy="limit 4GiB", timeout="10m")``
    """
    asked = _Asked(Call.of_function(policy=policy, gpus=gpus, timeout=timeout))
    if function is None:
        return lambda function: Isolated(function, asked)
    return Isolated(function, asked)


class _Asked:
    """What is asked of a function's calls, and what runs those that are submitted."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.lock = threading.RLock()
        self._executor: IsolatedExecutor | None = None

    def executor(self) -> IsolatedExecutor:
        """Return the executor; if no call of it runs or waits, a new one, which finds out how many have room now."""
        with self.lock:
            if self._executor is None or self._executor.idle:
                self._executor = IsolatedExecutor(**self.call.options)
            return self._executor

    def __reduce__(self) -> tuple[type[_Asked], tuple[Call]]:
        return _Asked, (self.call,)


class Isolated(Generic[P, R]):
    """A function whose calls have processes of their own; `isolated` makes it.

    Attributes:
        __wrapped__: the function itself, which calls in this process.
    """

    __wrapped__: Callable[P, R]

    def __init__(self, function: Callable[P, R], asked: _Asked) -> None:
        if not callable(function):
            raise TypeError(f"only what can be called can be isolated, and a {type(function).__name__} cannot")
        functools.update_wrapper(self, function)
        self._asked = asked

    @property
    def asked(self) -> Call:
        """What is asked of each call."""
        return self._asked.call

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it in a process of its own, and wait for what it returns or raises.

        Raises:
            BaseException: what it raised.
            Unpicklable: the function, an argument or the result cannot be sent; the message names it.
            Refused: other programs hold what it needs of the GPUs.
            WorkerDied: its process ended without an answer.
            TimedOut: it took too long.
        """
        if process_kind.in_worker:
            return self.__wrapped__(*args, **kwargs)
        __tracebackhide__ = True  # by which IPython leaves out frames that do not help its user
        asked = self.asked
        function, values = _function(self.__wrapped__, args)
        try:
            work = pickling.dump_call(function, values, kwargs, reduce=_by_wrapper)
            run = Run(call=asked, work=work.parts)
            own = asked.policy.requests or asked.gpus is not None
            outcome = run.run(lease_of_own(run) if own else lease_as_here(run), function_runner())
            with noting_interrupt():
                value: R = outcome.value()
        except BaseException as error:
            raise error.with_traceback(None)  # noqa: B904  # whose frames are ours
        return value

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> CallFuture[R]:
        """Submit a call in a process of its own, with GPUs of its own, and return the future of its value.

        The future's `stop()` stops the call.

        How many calls run at once is decided at the first of those that run together; the others wait.

        Raises:
            Refused: while none runs, other programs hold what a call needs of the GPUs.
        """
        function, values = _function(self.__wrapped__, args)
        with self._asked.lock:  # what another thread submits meanwhile runs in the same executor
            return self._asked.executor().submit_call(function, values, kwargs, reduce=_by_wrapper)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Isolated[P, R]: ...
    @overload
    def __get__(self: Isolated[Concatenate[S, Q], R], instance: S, owner: type | None = None) -> Isolated[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind it as a function is bound to an instance, which is sent with each call."""
        bind = getattr(self.__wrapped__, "__get__", None)
        if instance is None or bind is None:
            return self
        return Isolated(bind(instance, owner), self._asked)

    def __repr__(self) -> str:
        return f"<isolated {self.__wrapped__!r}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Reduce it to its name if other processes can import it, as a function is; else to its parts."""
        return vars(self)["__qualname__"] if _importable(self) is self else super().__reduce_ex__(protocol)


def _function(function: Callable[..., R], args: tuple[Any, ...]) -> tuple[Callable[..., R], tuple[Any, ...]]:
    """Split a method into its function and its instance: by its name, the other process would find the isolated one."""
    if isinstance(function, types.MethodType):
        return function.__func__, (function.__self__, *args)
    return function, args


def _by_wrapper(part: Any) -> Any:
    """Pickle a function that was isolated in its definition by the `Isolated` that has its name now."""
    if isinstance(part, types.FunctionType):
        found = _importable(part)
        if isinstance(found, Isolated) and found.__wrapped__ is part:
            return operator.attrgetter("__wrapped__"), (found,)
    return plain.reduce_for_call(part)


def _importable(part: Any) -> object:
    """Return what another process gets when it imports an object by its module and name; None if it cannot."""
    module, name = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
    if module == "__main__" or name is None or module not in sys.modules:
        return None
    found: object = sys.modules[module]
    for part_name in name.split("."):
        found = inspect.getattr_static(found, part_name, None)
    return found
