"""A `concurrent.futures.Executor` whose calls run in processes of their own, each with leased GPUs.

It is a facade: the calls run in `local`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

from tfgpu_magic.config.policy import Policy
from tfgpu_magic.isolate import options
from tfgpu_magic.isolate.local import CallFuture, Local
from tfgpu_magic.isolate.values import pickling

P = ParamSpec("P")
T = TypeVar("T")


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
        checked = options.read(policy, gpus, timeout)
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")  # the standard library's text
        self._first = None if initializer is None else (initializer, initargs)
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        self._backend = Local(checked, max_workers)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> CallFuture[T]:
        """Submit a call of a function, and return the future of its value; the future's `stop()` stops the call.

        The future raises what the function raises; `Unpicklable`, which names what cannot be sent; `WorkerDied`;
        `TimedOut`; `Refused` if other programs hold what it needs.
        """
        function = fn if self._first is None else _Prepared(*self._first, fn)
        return self._backend.submit(function, args, kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **more: Any,
    ) -> Iterator[T]:
        """Submit a call for each of the arguments, and give the values in order, as any executor does.

        Args:
            fn: the function.
            iterables: its arguments.
            timeout: seconds from now in which all values must be there.
            chunksize: a number above zero, which has no effect: each call has a process of its own.
            more: the other arguments that `Executor.map` of this Python takes.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")  # the standard library's text
        return super().map(fn, *iterables, timeout=timeout, **more)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; those that run go on to their end, as do those that wait unless they are cancelled."""
        self._backend.shutdown(wait=wait, cancel=cancel_futures)

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
        self._backend.end(kill=False)

    def kill_workers(self) -> None:
        """Cancel the calls that wait, and kill those that run.

        Source: `ProcessPoolExecutor.kill_workers` of Python 3.14.
        """
        self._backend.end(kill=True)


class _Prepared:
    """A function that is called after an initializer in the same process."""

    def __init__(self, first: Callable[..., object], arguments: tuple[Any, ...], function: Callable[..., Any]) -> None:
        self._first, self._arguments, self._function = first, arguments, function
        self.__qualname__ = pickling.name_of(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._first(*self._arguments)
        return self._function(*args, **kwargs)
