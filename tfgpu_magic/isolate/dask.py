"""Isolated functions as tasks of a Dask cluster, for the `submit` and `map` of Dask's own client; only this knows Dask.

Futures, resources, retries, and what becomes of a lost worker are Dask's. What it does not do by itself is here: the
worker's own process loads no code of the function; what the call prints is printed by the clients; an exception
arrives as it was raised; and a task that is cancelled ends.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from tfgpu_magic.errors import Raised, TfGpuError, WorkerDied
from tfgpu_magic.ground.message import msg
from tfgpu_magic.isolate import run
from tfgpu_magic.isolate.call import Outcome
from tfgpu_magic.isolate.executor import Isolated
from tfgpu_magic.isolate.leasing import Abandoned
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER
from tfgpu_magic.isolate.run import Run
from tfgpu_magic.isolate.sinks import Sink
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.isolate.watch import GRACE


def dask_setup(_worker: Any) -> None:
    """Warm the fork server when a worker starts: ``dask worker … --preload tfgpu_magic.isolate.dask``."""
    FORK_SERVER.process()


class Task:
    """An isolated function for a Dask client: each call leases GPUs of its worker's machine, as `submit` does here.

    Raises:
        Unpicklable: it cannot be sent; the message names the part that cannot.

    Examples:
        ``client.submit(Task(train), 64, resources={"GPU": 1}, pure=False)``
    """

    def __init__(self, function: Isolated[..., Any]) -> None:
        self.__name__ = self.__qualname__ = pickling.name_of(function)
        self._asked = function.asked
        self._parts = tuple(map(bytes, pickling.dump(function, self.__name__, reduce=_by_content).parts))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, in a Dask worker. The errors of this package that it raises have the worker as their `place`."""
        import distributed

        over = threading.Event()
        worker = distributed.get_worker()
        key, place = worker.get_current_task(), f"{socket.gethostname()} (Dask worker {worker.name})"

        def wanted() -> bool:
            task = worker.state.tasks.get(key)
            return task is not None and task.state in ("executing", "long-running")  # else it was taken back

        def own(part: Any) -> Any:
            return (pickling.load, (self._parts,)) if part is self else NotImplemented

        try:
            work = pickling.dump_call(self, args, kwargs, reduce=own)
            one = Run(call=self._asked, work=work.parts, sink=_Prints())
            threading.Thread(target=_watch, args=(one, wanted, over), name="tfgpu_magic-watch", daemon=True).start()
            outcome = one.run(run.lease_of_own(one), run.function_runner())
            if outcome.late is not None or not outcome.failure:
                return outcome.value()
        except TfGpuError as error:
            error.place = place
            raise
        except (KeyboardInterrupt, Abandoned) as error:  # a worker of Dask's ends where a task raises the first
            raise WorkerDied("The call was stopped.", stopped=True) from error
        finally:
            over.set()
        story = getattr(outcome.error(), "__cause__", None)  # else Dask, which sends causes beside errors, sends none
        raise _RaisedAfar(tuple(map(bytes, outcome.failure)), place) from story


def _by_content(part: Any) -> Any:
    """Pickle a mapped array by what is in it: the file may not be on the other machine."""
    return NotImplemented if pickling.reduce_by_file(part) is NotImplemented else part.__reduce_ex__(5)


class _Prints(Sink):
    """A sink for the streams of the worker and of all clients."""

    def write(self, stream: str, text: str) -> None:
        with contextlib.suppress(Exception):  # the worker's own stream: its terminal has gone
            sys.modules["distributed"].print(text, end="", file=getattr(sys, stream), flush=True)


def _watch(run: Run, wanted: Callable[[], bool], over: threading.Event) -> None:
    """Interrupt a call that nobody wants any more, and kill it `GRACE` later: its task or its client is gone."""
    while not over.wait(0.1) and wanted():  # seconds between two such questions
        pass
    if not over.is_set():
        run.stop()
    if not over.wait(GRACE):
        run.kill()


class _RaisedAfar(Exception):
    """The exception of a call, as Dask sends it: unpickled, it is what the call raised."""

    def __reduce__(self) -> Any:
        return _revived, self.args


def _revived(failure: tuple[bytes, ...], place: str) -> Exception:
    error = Outcome(failure=tuple(map(memoryview, failure))).error()
    if not isinstance(error, Exception):  # a SystemExit, of which Dask's own threads would end
        error = Raised(msg("{name}: {text}", name=type(error).__name__, text=error))
    if isinstance(error, TfGpuError):
        error.place = place
    return error
