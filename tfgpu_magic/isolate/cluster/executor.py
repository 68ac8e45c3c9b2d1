"""Isolated calls on many machines: an executor whose calls are Dask tasks; what a worker does with one, `remote` says.

A cluster is started with Dask's own programs, its GPUs as a resource that calls take::

    dask scheduler
    dask worker tcp://scheduler:8786 --resources "GPU=2"      # on each machine, with the GPUs it has

and used with ``IsolatedExecutor(cluster="tcp://scheduler:8786")``, or ``cluster=`` a `distributed.Client`.

What travels: the function, its arguments and its result, pickled here and in the call's process only; the policy, the
number of GPUs and the timeout; output, as it comes; exceptions. What does not: the environment, the working directory,
the policy that holds here, and modules: each machine has its own.

One thread does all that happens to the calls of an executor, in the order in which it happened.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import tfgpu_magic
from tfgpu_magic.errors import Refused, TfGpuError, Unpicklable, WorkerDied
from tfgpu_magic.isolate.call import Answer
from tfgpu_magic.isolate.cluster import parcel
from tfgpu_magic.isolate.cluster.link import Link
from tfgpu_magic.isolate.cluster.parcel import Errand
from tfgpu_magic.isolate.executor import IsolatedExecutor
from tfgpu_magic.isolate.process.order import Facts
from tfgpu_magic.isolate.screen import Here
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.isolate.values.guard import ROOTS
from tfgpu_magic.isolate.values.pickling import Pickled, Reduce

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds in which a worker with GPUs enough must appear where there is none: a nanny needs a few for a new one."""

_LOOK = 2.0  # seconds between two looks at the cluster's workers


@dataclass(slots=True, eq=False)
class _Sent:
    """A call that has not come home.

    Attributes:
        errand: what its worker is told.
        work: its values.
        future: what its caller has.
        task: what Dask has; None while it waits here.
        place: the machine on which it has begun.
    """

    errand: Errand
    work: Pickled
    future: Future[Any] = field(default_factory=Future)
    task: Any = None
    place: str | None = None


class ClusterExecutor(IsolatedExecutor):
    """What ``IsolatedExecutor(cluster=…)`` is: its calls run in processes of their own on a cluster's machines.

    All that is said of `IsolatedExecutor` holds, but for this. `max_workers` is how many calls Dask is given at once,
    by default all. `gpus` is how many GPUs of one machine a call gets, and how many of the resource ``GPU`` it takes
    of a worker; by default one. A call that Dask has can be cancelled until it begins. What is not shut down is ended
    with this process.
    """

    def _open(self, max_workers: int | None, cluster: Any) -> None:
        self._most = max_workers
        self._gpus = 1 if self._terms.gpus is None else self._terms.gpus
        self._link = Link(cluster)
        self._screen = Here()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waiting: deque[_Sent] = deque()
        self._out: dict[str, _Sent] = {}
        self._spent: list[str] = []  # calls that are over, of which the scheduler knows that they had begun
        self._without: float | None = None  # since when there is no worker for the calls
        self._thread = threading.Thread(target=self._work, name="tfgpu_magic-cluster", daemon=True)
        self._thread.start()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; those that run go on to their end, as do those that wait unless they are cancelled."""
        with self._lock:
            self._ended = True
            calls = [*self._waiting, *self._out.values()] if cancel_futures else []
        for call in calls:
            call.future.cancel()
        self._inbox.put(self._go_on)
        if wait and self._thread is not threading.current_thread():
            self._thread.join()

    def _end(self, times: int) -> None:
        del times  # from here a process can only be asked to end; what does not heed it is killed there
        self.shutdown(wait=False, cancel_futures=True)
        error = "The call was ended, because all calls of its executor were."
        self._inbox.put(partial(self._fail_all, lambda _: WorkerDied(error)))

    def _submit(
        self, function: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any], reduce: Reduce | None
    ) -> Future[T]:
        function = self._prepared(function)
        name = pickling.name_of(function)
        errand = Errand(
            key=f"{name}-{uuid.uuid4()}",
            topic=self._link.topic,
            name=name,
            terms=self._terms,
            imported=ROOTS & sys.modules.keys(),
        )
        try:
            call = _Sent(errand, pickling.dump_call(function, args, kwargs, reduce=reduce))
        except Unpicklable as error:
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed
        call.future.add_done_callback(partial(self._note, call))
        with self._lock:
            if self._ended:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append(call)
        self._inbox.put(self._go_on)
        return call.future

    def _note(self, call: _Sent, future: Future[Any]) -> None:
        if future.cancelled():
            self._inbox.put(partial(self._drop, call))

    # What follows is done by our thread.

    def _work(self) -> None:
        """Do what is due until all calls are over."""
        looked = time.monotonic()
        try:
            while not (self._ended and not self._waiting and not self._out):
                with contextlib.suppress(queue.Empty):
                    self._inbox.get(timeout=_LOOK)()
                if time.monotonic() - looked >= _LOOK:
                    self._look()
                    looked = time.monotonic()
        finally:
            with self._lock:
                self._ended = True
                self._out |= {call.errand.key: call for call in self._waiting}
            self._fail_all(lambda _: WorkerDied("What waits for the cluster has failed, and left this call alone."))
            self._link.clear(self._spent)
            self._link.close()

    def _go_on(self) -> None:
        """Give Dask what waits, as far as there is room."""
        while self._waiting and (self._most is None or len(self._out) < self._most):
            with self._lock:
                call = self._waiting.popleft()
                self._out[call.errand.key] = call
            if call.future.cancelled():
                self._drop(call)
                continue
            try:
                call.task = self._link.send(call.errand, call.work, self._gpus, self._later(self._hear, call))
            except Exception as error:  # whatever Dask raises where its client is closed
                self._settle(call, error=self._lost(call, error))
            else:
                call.task.add_done_callback(self._later(self._take, call))

    def _later(self, do: Callable[..., None], call: _Sent) -> Callable[[Any], None]:
        """What others call to have something done by our thread."""
        return lambda told: self._inbox.put(partial(do, call, told))

    def _hear(self, call: _Sent, message: Mapping[str, Any]) -> None:
        """Be told of a call that it has begun, or what it printed."""
        if "text" in message:
            with contextlib.suppress(Exception):  # a closed stream; the call goes on
                self._screen.write(message["stream"], message["text"])
        elif call.place is None and not call.future.done():
            call.place = message["place"]
            if not call.future.set_running_or_notify_cancel():
                self._forget(call)

    def _take(self, call: _Sent, task: Any) -> None:
        """Take what became of a call from Dask."""
        if call.errand.key not in self._out:
            return
        try:
            kind, place, *parts = task.result()
        except BaseException as error:  # also CancelledError, which Dask raises where the connection was lost
            self._settle(call, error=self._lost(call, error))
            return
        if kind not in (parcel.ANSWERED, parcel.RAISED):
            self._settle(call, error=_refusal(kind, place, call, parts))
            return
        try:
            value = Answer(kind == parcel.RAISED, Facts(), tuple(map(parcel.unpacked, parts)), 0.0).value()
        except BaseException as error:  # whatever the function raised
            if isinstance(error, TfGpuError):
                error.args = (f"{error}\nThis was on {place}.",)
            self._settle(call, error=error)
        else:
            self._settle(call, value)

    def _settle(self, call: _Sent, value: Any = None, *, error: BaseException | None = None) -> None:
        """End a call for its caller, and for Dask."""
        self._forget(call)
        if call.place is None and not call.future.set_running_or_notify_cancel():
            return  # it was cancelled in time
        if error is None:
            call.future.set_result(value)
        else:
            call.future.set_exception(error)

    def _drop(self, call: _Sent) -> None:
        """Forget a call that was cancelled."""
        if call in self._waiting:
            self._waiting.remove(call)
        elif call.errand.key in self._out:
            self._forget(call)
        else:
            return
        call.future.set_running_or_notify_cancel()  # those that wait for it are told

    def _fail_all(self, error: Callable[[_Sent], BaseException]) -> None:
        for call in [*self._out.values()]:
            self._settle(call, error=error(call))

    def _forget(self, call: _Sent) -> None:
        """Let go of what Dask has of it; where it still runs, its worker sees that, and ends it."""
        del self._out[call.errand.key]
        if call.task is not None:
            self._link.forget(call.errand.key, call.task)
            self._spent.append(call.errand.key)
        self._inbox.put(self._go_on)

    def _look(self) -> None:
        """See whether there are workers for what waits; fail it where there are none for long."""
        # Only now are the tasks forgotten for sure; before, one could have run again.
        spent, self._spent = self._spent, []
        self._link.clear(spent)
        gpus = self._link.gpus() if self._out else None
        if gpus is None or any(count >= self._gpus for count in gpus.values()):
            self._without = None
            return
        self._without = self._without or time.monotonic()
        if time.monotonic() - self._without >= PATIENCE:
            self._fail_all(lambda call: self._nobody(call, gpus))

    def _nobody(self, call: _Sent, gpus: Mapping[str, float]) -> TfGpuError:
        """What is wrong where no worker can have a call."""
        if call.place is not None:
            return _gone(call)
        there = ", ".join(f"{address} (GPU={count:g})" for address, count in gpus.items()) or "none"
        return Refused(
            f"Not started. No Dask worker offers {self._gpus} GPU{'s' * (self._gpus != 1)}, after {PATIENCE:g} s. "
            f"The workers there are: {there}.\nStart one on a machine with GPUs: "
            f'dask worker {self._link.address} --resources "GPU={max(self._gpus, 1)}"'
        )

    def _lost(self, call: _Sent, error: BaseException) -> TfGpuError:
        """What is wrong where Dask has no answer."""
        kind = type(error).__name__
        if kind == "KilledWorker":
            return _gone(call)
        if "Cancelled" in kind or self._link.is_lost():
            done = "ran to its end" if call.place else "began"
            return WorkerDied(
                f"The connection to the Dask scheduler at {self._link.address} was lost, and the call with it: it is "
                f"not known whether it {done}. It is not run again."
            )
        return Refused(f"Dask could not run the call: {kind}: {error}")


def _gone(call: _Sent) -> WorkerDied:
    return WorkerDied(
        f"The call began on {call.place or 'a machine'}, whose Dask worker was lost before the answer was here. "
        "It was not run again."
    )


def _refusal(kind: str, place: str, call: _Sent, parts: list[str]) -> TfGpuError:
    """What is wrong where a worker did not run a call."""
    if kind == parcel.ABSENT:
        return Refused(
            f"Not started. There is no tfgpu_magic on {place}, where the Dask worker is: {parts[0]}. "
            "Install it there: pip install 'tfgpu-magic[dask]'"
        )
    if kind == parcel.OTHER:
        return Refused(
            f"Not started. tfgpu_magic is {parts[0]} on {place}, where the Dask worker is, and "
            f"{tfgpu_magic.__version__} here. Install the same version there."
        )
    return _gone(call)
