"""`@isolated`: a function whose every call has a process of its own."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from tfgpu_magic.ground import host
from tfgpu_magic.isolate import run
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.executor import CallFuture, IsolatedExecutor
from tfgpu_magic.isolate.process.interrupt import noted
from tfgpu_magic.isolate.run import Options
from tfgpu_magic.isolate.values import pickling, plain
from tfgpu_magic.policy.policy import Policy

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


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
    asked = _Asked(Options.of(policy, gpus, timeout))
    if function is None:
        return lambda function: Isolated(function, asked)
    return Isolated(function, asked)


class _Asked:
    """The options of a function's calls, and what runs those that are submitted."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.lock = threading.RLock()
        self._executor: IsolatedExecutor | None = None

    def executor(self) -> IsolatedExecutor:
        """Return the executor; where no call of it runs or waits, a new one, which looks for how many have room now."""
        with self.lock:
            if self._executor is None or self._executor.idle:
                asked = self.options
                self._executor = IsolatedExecutor(policy=asked.policy, gpus=asked.gpus, timeout=asked.timeout)
            return self._executor

    def __reduce__(self) -> tuple[type[_Asked], tuple[Options]]:
        return _Asked, (self.options,)


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
    def options(self) -> Options:
        """What is asked for each call."""
        return self._asked.options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it in a process of its own, and wait for what it returns or raises.

        Raises:
            BaseException: what it raised.
            Unpicklable: the function, an argument or the result cannot be sent; the message names it.
            Refused: other programs hold what it needs of the GPUs.
            WorkerDied: its process ended without an answer.
            TimedOut: it took too long.
        """
        if host.in_worker:
            return self.__wrapped__(*args, **kwargs)
        __tracebackhide__ = True  # by which IPython leaves out frames that do not help its user
        asked = self._asked.options
        function, values = _function(self.__wrapped__, args)
        try:
            work = pickling.dump_call(function, values, kwargs, reduce=_by_wrapper)
            call = Call(work=work.parts, timeout=asked.timeout)
            own = asked.policy.requests or asked.gpus is not None
            answer = run.run(call, run.leased(asked, call) if own else run.as_here(asked), run.function_runner())
            with noted():
                value: R = answer.value()
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
    return plain.there(part)


def _importable(part: Any) -> object:
    """Return what another process gets when it imports an object by its module and name; None if it cannot."""
    module, name = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
    if module == "__main__" or name is None or module not in sys.modules:
        return None
    found: object = sys.modules[module]
    for part_name in name.split("."):
        found = inspect.getattr_static(found, part_name, None)
    return found
