"""A `concurrent.futures.Executor` whose calls run in processes of their own, each with GPUs that no other of them has.

Threads of this process wait for the calls. Which GPUs one gets is the ledger's affair; how it runs, the call's.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from tfgpu_magic.config.policy import Policy
from tfgpu_magic.errors import WorkerDied
from tfgpu_magic.isolate import terms
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.ledger import LEDGER, Abandoned
from tfgpu_magic.isolate.values.pickling import Reduce

P = ParamSpec("P")
T = TypeVar("T")


class IsolatedExecutor(Executor):
    """Calls functions in processes of their own, which give their GPU memory back when they return.

    Each call gets GPUs of its own. With a limit it shares a GPU with others as far as there is room; a percentage is
    then all that its process holds, so that four calls at 25% run on one GPU. What a call prints is seen here.

    As in `ProcessPoolExecutor`, functions, arguments and results are pickled, also what a notebook defines. There
    is no pool of processes: nothing that a call leaves behind is there in the next, and one that dies breaks nothing.

    Args:
        max_workers: how many calls run at once; by default as many as the GPUs have room for now, or as there are
            CPUs where the calls use no GPU.
        policy: what each call asks of its GPUs, such as ``"limit 4GiB"``, beyond what holds in this process.
        gpus: how many GPUs each call gets; 0 hides them all. By default one, where there is one.
        timeout: seconds that a call may take, or a text such as ``"10m"``; waiting for a GPU is not counted.
        cluster: run the calls on the machines of a Dask cluster: its scheduler's address, or a `distributed.Client`.
            What holds in this process is not asked there; `max_workers` is then how many calls Dask is given at
            once, by default all; see `cluster`.
        initializer: is called in each call's process before its function.
        initargs: with what.

    Raises:
        PolicyError: the policy, the number of GPUs or the timeout is none.
        Refused: no call could have what is asked, or there is no such cluster.
        ValueError: `max_workers` is not above zero.

    Examples:
        ``with IsolatedExecutor(policy="limit 25%") as executor: list(executor.map(train, range(5)))``
    """

    def __new__(cls, *_: Any, cluster: Any = None, **__: Any) -> IsolatedExecutor:
        """One for calls elsewhere, where a cluster is given."""
        if cluster is None or cls is not IsolatedExecutor:
            return super().__new__(cls)
        from tfgpu_magic.isolate.cluster.executor import ClusterExecutor  # which is one of these

        return super().__new__(ClusterExecutor)

    def __init__(
        self,
        max_workers: int | None = None,
        policy: str | Policy | None = None,
        gpus: int | None = None,
        timeout: float | str | None = None,
        *,
        cluster: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        self._terms = terms.read(policy, gpus, timeout)
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")  # as the standard library says it
        self._first = None if initializer is None else (initializer, initargs)
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        self._lock = threading.Lock()
        self._ended = False
        self._open(max_workers, cluster)

    def _open(self, max_workers: int | None, _cluster: Any) -> None:
        room = None if self._terms.gpus == 0 else LEDGER.survey(self._terms.policy, self._terms.gpus)
        workers = max_workers or room or len(os.sched_getaffinity(0))
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="tfgpu_magic-call")
        self._calls: set[Call] = set()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a function called, and return the future of its value.

        The future raises what the function raises; `Unpicklable`, which names what cannot be sent; `WorkerDied`;
        `TimedOut`; `Refused` where other programs hold what it needs.
        """
        return self._submit(fn, args, kwargs, None)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **more: Any,
    ) -> Iterator[T]:
        """Have a function called with each of the arguments, and yield the values in order, as any executor does.

        Args:
            fn: the function.
            iterables: its arguments.
            timeout: seconds from now in which all values must be there.
            chunksize: nothing but a number above zero: each call has a process of its own.
            more: what `Executor.map` of this Python takes beside these.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")  # as the standard library says it
        return super().map(fn, *iterables, timeout=timeout, **more)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; those that run go on to their end, as do those that wait unless they are cancelled."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for all calls, as every executor; but a Ctrl-C in the block is for them too."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.terminate_workers()
        self.shutdown()

    def terminate_workers(self) -> None:
        """Cancel what waits, and stop what runs as Ctrl-C does; what does not heed it in 5 seconds is killed.

        The futures of what was stopped raise `WorkerDied`. Nothing can be submitted after it.
        Source: `ProcessPoolExecutor.terminate_workers` of Python 3.14.
        """
        self._end(1)

    def kill_workers(self) -> None:
        """Cancel what waits, and kill what runs, as `ProcessPoolExecutor.kill_workers` of Python 3.14 does."""
        self._end(2)

    def _end(self, times: int) -> None:
        with self._lock:
            self._ended = True
            calls = list(self._calls)
        self.shutdown(wait=False, cancel_futures=True)
        LEDGER.stir()
        for call in calls:
            for _ in range(times):  # who is asked twice is killed
                call.interrupt()

    def _submit(
        self, function: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any], reduce: Reduce | None
    ) -> Future[T]:
        return self._threads.submit(self._run, function, args, kwargs, reduce)

    def _run(
        self, function: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any], reduce: Reduce | None
    ) -> T:
        """Run a call to its end, in a thread of ours."""
        function = self._prepared(function)
        with contextlib.ExitStack() as begun:
            try:
                value: T = terms.run(
                    self._terms,
                    function,
                    args,
                    kwargs,
                    leased=True,
                    reduce=reduce,
                    begun=lambda call: begun.enter_context(self._known(call)),
                    wanted=lambda: not self._ended,
                )
            except (KeyboardInterrupt, WorkerDied, Abandoned) as error:
                if self._ended:
                    raise WorkerDied("The call was ended, because all calls of its executor were.") from error
                raise
            return value

    def _prepared(self, function: Callable[..., T]) -> Callable[..., T]:
        return function if self._first is None else _Prepared(*self._first, function)

    @contextlib.contextmanager
    def _known(self, call: Call) -> Iterator[None]:
        """Know the call while it runs, so that it can be ended."""
        with self._lock:
            if self._ended:
                raise Abandoned
            self._calls.add(call)
        try:
            yield
        finally:
            with self._lock:
                self._calls.discard(call)


class _Prepared:
    """A function that is called after another one, the initializer, in the same process."""

    def __init__(self, first: Callable[..., object], arguments: tuple[Any, ...], function: Callable[..., Any]) -> None:
        self._first, self._arguments, self._function = first, arguments, function
        self.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._first(*self._arguments)
        return self._function(*args, **kwargs)
