"""Isolated calls on many machines: what runs them as Dask tasks; what a worker does with one, `remote` says.

A cluster is started with Dask's own programs, its GPUs as a resource that calls take::

    dask scheduler
    dask worker tcp://scheduler:8786 --resources "GPU=2"      # on each machine, with the GPUs it has

and used with ``IsolatedExecutor(cluster="tcp://scheduler:8786")``, or ``cluster=`` a `distributed.Client`.
A scheduler without TLS runs what anybody who reaches its port sends, as the user who started the workers.

What travels: the function, its arguments and its result, pickled here and in the call's process only; the policy, the
number of GPUs and the timeout; output, as it comes; exceptions. What does not: the environment, the working directory,
the policy that holds here, and modules: each machine has its own.

One thread does all that happens to the calls of an executor, in the order in which it happened.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tfgpu_magic import units
from tfgpu_magic.errors import TfGpuError, Unpicklable, WorkerDied
from tfgpu_magic.isolate.answer import Answer
from tfgpu_magic.isolate.backend import ENDED, STOPPED, Door
from tfgpu_magic.isolate.cluster import errors, message
from tfgpu_magic.isolate.cluster.link import Link
from tfgpu_magic.isolate.cluster.message import CallRequest
from tfgpu_magic.isolate.cluster.sent import Sent, raised
from tfgpu_magic.isolate.future import CallFuture
from tfgpu_magic.isolate.options import Options

PATIENCE = 20.0
"""Seconds in which there must be a worker with GPUs enough, and room on them: a nanny needs a few for a new one."""

_LOOK = 2.0  # seconds between two looks at the cluster's workers


class Cluster:
    """A `Backend` whose calls run in processes of their own on a cluster's machines.

    All that is said of `IsolatedExecutor` holds, but for this. `max_workers` is how many calls Dask is given at once,
    by default all. `gpus` is how many GPUs of one machine a call gets, and how many of the resource ``GPU`` it takes
    of a worker; by default one. A call that Dask has can be cancelled until it begins. What is not shut down is ended
    with this process.

    Args:
        options: what is asked for each call.
        most: how many calls Dask has at once; None is all.
        cluster: as in `Link`.
        security: as in `Link`.
        wait: seconds in which there must be a worker for a call, or a text; by default `PATIENCE`.

    Raises:
        PolicyError: the time is none.
        Refused: there is no such cluster.
    """

    def __init__(
        self, options: Options, most: int | None, cluster: Any, security: Any, wait: float | str | None
    ) -> None:
        self.door = Door()
        self.most = most
        self._options = options
        self._gpus = 1 if options.gpus is None else options.gpus
        self._patience = PATIENCE if wait is None else units.seconds(wait)
        self._link = Link(cluster, security)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._queue: deque[Sent] = deque()
        self._resting: list[Sent] = []  # those that no worker has room for now
        self._out: dict[str, Sent] = {}
        self._spent: list[str] = []  # calls that are over, of which the scheduler knows that they had begun
        self._without: float | None = None  # since when there is no worker for the calls
        self._thread = threading.Thread(target=self._work, name="tfgpu_magic-cluster", daemon=True)
        self._thread.start()

    def add(self, call: CallFuture[Any]) -> None:
        """Send a call, when there is room for it."""
        sent = Sent(CallRequest.of(call.title, self._options, self._link.topic), call.take(), call)
        call.add_done_callback(partial(self._note, sent))
        call.interrupt = lambda: self._inbox.put(partial(self._stop, sent))
        with self.door.changed:
            self.door.check()
            self._queue.append(sent)
        self._inbox.put(self._go_on)

    def shutdown(self, *, wait: bool, cancel: bool) -> None:
        """Take no more calls."""
        with self.door.changed:
            self.door.closed = True
            calls = [*self._queue, *self._resting, *self._out.values()] if cancel else []
        for call in calls:
            call.future.cancel()
        self._inbox.put(self._go_on)
        if wait and self._thread is not threading.current_thread():
            self._thread.join()

    def end(self, times: int) -> None:
        """Cancel what waits, and end what runs: from here a process can only be asked to end, and once is enough."""
        del times  # what does not heed it is killed there
        self.shutdown(wait=False, cancel=True)
        self._inbox.put(partial(self._fail_all, lambda _: WorkerDied(ENDED, stopped=True)))

    def _note(self, call: Sent, future: Any) -> None:
        if future.cancelled():
            self._inbox.put(partial(self._drop, call))

    # What follows is done by our thread.

    def _work(self) -> None:
        """Do what is due until all calls are over."""
        looked = time.monotonic()
        try:
            while not (self.door.closed and not self._queue and not self._resting and not self._out):
                with contextlib.suppress(queue.Empty):
                    self._inbox.get(timeout=_LOOK)()
                if time.monotonic() - looked >= _LOOK:
                    self._look()
                    looked = time.monotonic()
        finally:
            with self.door.changed:
                self.door.closed = True
                self._resting += self._queue
                self._queue.clear()
            self._fail_all(lambda _: WorkerDied("What waits for the cluster has failed, and left this call alone."))
            self._link.clear(self._spent)
            self._link.close()

    def _go_on(self) -> None:
        """Give Dask what waits, as far as there is room."""
        while self._queue and (self.most is None or len(self._out) < self.most):
            with self.door.changed:
                call = self._queue.popleft()
            if call.future.cancelled():
                call.future.set_running_or_notify_cancel()
            else:
                self._send(call)

    def _send(self, call: Sent) -> None:
        self._out[call.request.key] = call
        try:
            call.task = self._link.send(
                call.request, call.work, self._gpus, self._later(self._hear, call), call.workers
            )
        except Exception as error:  # whatever Dask raises where its client is closed
            self._settle(call, error=self._lost(call, error))
        else:
            call.task.add_done_callback(self._later(self._take, call))

    def _later(self, do: Callable[..., None], call: Sent) -> Callable[[Any], None]:
        """What others call to have something done by our thread."""
        key = call.request.key

        def done(told: Any) -> None:
            # What is told of an attempt that was given up is told of nobody.
            self._inbox.put(lambda: do(call, told) if call.request.key == key else None)

        return done

    def _hear(self, call: Sent, message: Mapping[str, Any]) -> None:
        """Be told of a call that it has begun, or what it printed."""
        if "text" in message:
            with contextlib.suppress(Exception):  # a closed stream; the call goes on
                call.future.sink.write(message["stream"], message["text"])
        elif call.place is None and not call.future.done():
            call.place = message["place"]
            if not call.future.set_running_or_notify_cancel():
                self._forget(call)
            else:
                call.future.begun, call.future.title = True, f"{call.request.name}, on {call.place}"
                call.future.enlist()

    def _take(self, call: Sent, task: Any) -> None:
        """Take what became of a call from Dask."""
        if call.request.key not in self._out:
            return
        try:
            kind, place, *parts = task.result()
            if kind == message.FULL:
                call.refusal = raised(place, parts[1:])
                self._rest(call, parts[0])
                return
        except BaseException as error:  # also CancelledError, which Dask raises where the connection was lost
            self._settle(call, error=self._lost(call, error))
            return
        if kind not in (message.ANSWERED, message.RAISED):
            self._settle(call, error=errors.refusal(kind, place, parts, call.place))
        elif kind == message.RAISED:
            self._settle(call, error=raised(place, parts))
        else:
            try:
                value = Answer(values=tuple(map(message.unpacked, parts))).value()
            except Unpicklable as error:
                self._settle(call, error=error)
            else:
                self._settle(call, value)

    def _settle(self, call: Sent, value: Any = None, *, error: BaseException | None = None) -> None:
        """End a call for its caller, and for Dask."""
        self._forget(call)
        if call.place is None and not call.future.set_running_or_notify_cancel():
            return  # it was cancelled in time
        call.future.forget()
        if error is None:
            call.future.set_result(value)
        else:
            call.future.set_exception(error.with_traceback(None))  # of ours

    def _stop(self, call: Sent) -> None:
        """End a call that runs."""
        if call.request.key in self._out:
            self._settle(call, error=WorkerDied(STOPPED, stopped=True))

    def _drop(self, call: Sent) -> None:
        """Forget a call that was cancelled."""
        if call in self._queue:
            self._queue.remove(call)
        elif call in self._resting or call.request.key in self._out:
            self._forget(call)
        else:
            return
        call.future.set_running_or_notify_cancel()  # those that wait for it are told

    def _fail_all(self, error: Callable[[Sent], BaseException]) -> None:
        for call in [*self._out.values(), *self._resting]:
            self._settle(call, error=error(call))

    def _forget(self, call: Sent) -> None:
        """Let go of what Dask has of it; where it still runs, its worker sees that, and ends it."""
        self._out.pop(call.request.key, None)
        if call in self._resting:
            self._resting.remove(call)
        if call.task is not None:
            self._link.forget(call.request.key, call.task)
            self._spent.append(call.request.guard)
        self._inbox.put(self._go_on)

    def _rest(self, call: Sent, address: str) -> None:
        """Have a call tried on another worker, where one has no room for it, or is gone before it began."""
        now = time.monotonic()
        call.full[address] = call.since = now
        del self._out[call.request.key]
        self._link.forget(call.request.key, call.task)
        call.task, call.request = None, call.request.again()
        self._resting.append(call)
        self._wake(self._link.gpus() or {})
        self._inbox.put(self._go_on)

    def _wake(self, gpus: Mapping[str, float]) -> None:
        """Give Dask those again for which there may be room by now."""
        now = time.monotonic()
        fitting = [address for address, count in gpus.items() if count >= self._gpus]
        for call in list(self._resting):
            workers = [address for address in fitting if now - call.full.get(address, 0.0) >= _LOOK]
            if workers:
                self._resting.remove(call)
                call.rested, call.workers = call.rested + now - call.since, workers
                self._send(call)
            elif call.rested + now - call.since >= self._patience:
                self._settle(call, error=call.refusal or errors.gone(None))

    def _look(self) -> None:
        """See whether there are workers for what waits; fail it where there are none for long."""
        # Only now are the tasks forgotten for sure; before, one could have run again.
        spent, self._spent = self._spent, []
        self._link.clear(spent)
        gpus = self._link.gpus() if self._out or self._resting else None
        if gpus is None:
            self._without = None
            return
        for call in list(self._out.values()):
            if call.place is None and call.workers is not None and not gpus.keys() & set(call.workers):
                self._rest(call, call.workers[0])
        self._wake(gpus)
        if any(count >= self._gpus for count in gpus.values()):
            self._without = None
            return
        self._without = self._without or time.monotonic()
        if time.monotonic() - self._without >= self._patience:
            self._fail_all(lambda call: self._nobody(call, gpus))

    def _nobody(self, call: Sent, gpus: Mapping[str, float]) -> TfGpuError:
        """What is wrong where no worker can have a call."""
        if call.place is not None:
            return errors.gone(call.place)
        return errors.nobody(self._gpus, self._patience, gpus, self._link.address)

    def _lost(self, call: Sent, error: BaseException) -> TfGpuError:
        return errors.lost(error, call.place, self._link.address, cut_off=self._link.is_lost())
